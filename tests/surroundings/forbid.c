/* Runs a program under a filter of system calls, as sandboxes and containers have: forbid ERRNO PROGRAM [ARGUMENT …]

   Calls that reach into another process or into the kernel's newer parts fail with that number, and so do those that Docker's default
   profile keeps from a container (without clone3, whose EPERM would keep every program from starting threads). */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEEP(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO)

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    struct sock_filter all[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KEEP(__NR_process_vm_readv), KEEP(__NR_process_vm_writev), KEEP(__NR_memfd_create),
        KEEP(434 /* pidfd_open */), KEEP(438 /* pidfd_getfd */), KEEP(424 /* pidfd_send_signal */),
        KEEP(__NR_kcmp), KEEP(__NR_userfaultfd), KEEP(425 /* io_uring_setup */), KEEP(__NR_perf_event_open),
        KEEP(__NR_ptrace), KEEP(__NR_bpf), KEEP(__NR_mbind), KEEP(__NR_get_mempolicy), KEEP(__NR_set_mempolicy),
        KEEP(__NR_move_pages), KEEP(__NR_add_key), KEEP(__NR_request_key), KEEP(__NR_keyctl), KEEP(__NR_unshare),
        KEEP(__NR_setns), KEEP(__NR_mount), KEEP(__NR_umount2), KEEP(__NR_pivot_root), KEEP(__NR_quotactl),
        KEEP(__NR_open_by_handle_at), KEEP(__NR_fanotify_init), KEEP(__NR_lookup_dcookie), KEEP(__NR_acct),
        KEEP(__NR_syslog), KEEP(__NR_clock_settime), KEEP(__NR_clock_adjtime), KEEP(__NR_settimeofday),
        KEEP(__NR_iopl), KEEP(__NR_ioperm), KEEP(__NR_vhangup), KEEP(__NR_nfsservctl), KEEP(__NR_reboot),
        KEEP(__NR_swapon), KEEP(__NR_swapoff), KEEP(__NR_kexec_load), KEEP(__NR_init_module),
        KEEP(__NR_finit_module), KEEP(__NR_delete_module), KEEP(426 /* io_uring_enter */),
        KEEP(427 /* io_uring_register */),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].k == SECCOMP_RET_ERRNO) all[i].k |= atoi(argv[1]) & SECCOMP_RET_DATA;
    struct sock_fprog program = {sizeof all / sizeof *all, all};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("forbid: no filter");
        return 99;
    }
    execvp(argv[2], argv + 2);
    perror("forbid: exec");
    return 98;
}
