/* Counts what the recorder does on one thread in a window: every function it calls outside of itself, and every system
   call of the thread, whoever makes it.

   The recorder's own imports are led over a few instructions each that count, if the thread is the one that is watched; so are the functions of
   the heap and the loader whose addresses it keeps itself.
   System calls are caught by the kernel's user dispatch: the first one in a window is refused and named, but for a wait. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

enum { MOST = 1024, CODE = 64 };
static const char *names[MOST];
static uint64_t hits[MOST];
static int imports;
static uint64_t watched; /* thread pointer */
static uint8_t *code;
static volatile char refuse;
static volatile long refused = -1;

static void on_system_call(int signal, siginfo_t *info, void *context) {
    (void)signal;
    refuse = 0;
    int waits = info->si_syscall == SYS_futex;
    /* A lock of PyTorch's or of the heap that another thread has: the recorder's own locks would be among its calls. */
    if (refused < 0 && !waits)
        refused = info->si_syscall;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = waits ? -EAGAIN : -ENOSYS;
}

static uint8_t *put(uint8_t *at, const void *bytes, size_t n) {
    memcpy(at, bytes, n);
    return at + n;
}

static void lead_over(void **slot, int i) {
    static const uint8_t load_thread[] = {0x50, 0x51, 0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0xb9};
    static const uint8_t compare[] = {0x48, 0x3b, 0x01, 0x75, 0x0d, 0x48, 0xb9};
    static const uint8_t count[] = {0x48, 0xff, 0x01, 0x59, 0x58, 0xff, 0x25, 0, 0, 0, 0};
    uint8_t *start = code + i * CODE, *at = start;
    uint64_t *mine = &watched, *hit = &hits[i];
    at = put(at, load_thread, sizeof load_thread);
    at = put(at, &mine, 8);
    at = put(at, compare, sizeof compare);
    at = put(at, &hit, 8);
    at = put(at, count, sizeof count);
    at = put(at, slot, 8);
    uintptr_t page = (uintptr_t)slot & ~4095ul;
    mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
    __atomic_store_n(slot, (void *)start, __ATOMIC_RELEASE);
}

struct part { uintptr_t at; int found; };

static int is_code(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct part *p = data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + h->p_vaddr;
        if (h->p_type == PT_LOAD && (h->p_flags & PF_X) && p->at - from < h->p_memsz)
            return p->found = 1;
    }
    return 0;
}

/* Words of the recorder's data that hold the address of one of these. */
static const char *const kept[] = {"malloc", "calloc", "realloc", "posix_memalign", "free", "dlopen", "dlclose"};
static int kept_words;

static void lead_kept(struct dl_phdr_info *info) {
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
        void *real = dlvsym(RTLD_DEFAULT, kept[k], "GLIBC_2.2.5");
        for (int i = 0; real && i < info->dlpi_phnum; i++) {
            const ElfW(Phdr) *h = &info->dlpi_phdr[i];
            void **word = (void **)((info->dlpi_addr + h->p_vaddr + 7) & ~7ul);
            void **end = (void **)(info->dlpi_addr + h->p_vaddr + h->p_memsz) - 1;
            if (h->p_type != PT_LOAD || !(h->p_flags & PF_W))
                continue;
            for (; word <= end && imports < MOST; word++)
                if (*word == real) {
                    names[imports] = kept[k];
                    lead_over(word, imports++);
                    kept_words++;
                }
        }
    }
}

static int lead_all(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    (void)data;
    if (!strstr(info->dlpi_name, "libstrandline"))
        return 0;
    uintptr_t base = info->dlpi_addr, table[DT_NUM] = {0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        for (ElfW(Dyn) *d = (ElfW(Dyn) *)(base + info->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; d++)
            if (d->d_tag < DT_NUM)
                table[d->d_tag] = d->d_un.d_ptr;
    }
    const ElfW(Sym) *symbols = (void *)table[DT_SYMTAB];
    const char *strings = (void *)table[DT_STRTAB];
    const uintptr_t lists[2][2] = {{table[DT_RELA], table[DT_RELASZ]}, {table[DT_JMPREL], table[DT_PLTRELSZ]}};
    for (int l = 0; l < 2; l++) {
        const ElfW(Rela) *r = (void *)lists[l][0], *end = (void *)(lists[l][0] + lists[l][1]);
        for (; r < end && imports < MOST; r++) {
            unsigned type = ELF64_R_TYPE(r->r_info);
            const ElfW(Sym) *s = &symbols[ELF64_R_SYM(r->r_info)];
            void **slot = (void **)(base + r->r_offset);
            struct part place = {(uintptr_t)*slot, 0};
            if ((type != R_X86_64_GLOB_DAT && type != R_X86_64_JUMP_SLOT) || s->st_shndx != SHN_UNDEF)
                continue;
            if (!dl_iterate_phdr(is_code, &place))
                continue;
            names[imports] = strings + s->st_name;
            lead_over(slot, imports++);
        }
    }
    lead_kept(info);
    return 1;
}

/* Puts the counters in; how many there are. Negative: not possible here. */
int counted_begin(void) {
    struct sigaction action = {.sa_sigaction = on_system_call, .sa_flags = SA_SIGINFO};
    code = mmap(0, MOST * CODE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED || sigaction(SIGSYS, &action, 0))
        return -1;
    dl_iterate_phdr(lead_all, 0);
    return imports;
}

/* How many of these are words of the recorder's data. */
int counted_kept(void) { return kept_words; }
const char *counted_name(int i) { return names[i]; }
uint64_t counted_hits(int i) { return hits[i]; }
/* The first system call of the last window; -1 where there was none. */
long counted_refused(void) { return refused; }

/* Whether the kernel catches system calls here: 110 is getppid. */
long counted_self_test(void) {
    refused = -1;
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &refuse))
        return -2;
    refuse = 1;
    syscall(SYS_getppid);
    refuse = 0;
    prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0);
    return refused;
}

/* So many pairs of an allocation and its end, counted. */
void counted_window(void *(*alloc)(void *, size_t), void (*delete)(void *, void *), void *this, size_t size, int pairs) {
    free(malloc(100000)); /* this thread's heap has room from now on: what follows needs no more from the kernel */
    memset(hits, 0, sizeof hits);
    refused = -1;
    prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &refuse);
    watched = (uint64_t)__builtin_thread_pointer();
    refuse = 1;
    for (int i = 0; i < pairs; i++)
        delete(this, alloc(this, size));
    refuse = 0;
    watched = 0;
    prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0);
}

/* The recorder's calls on this thread are counted from here on. What it calls may ask the kernel for something: that is not watched. */
void counted_from_here(void) {
    memset(hits, 0, sizeof hits);
    refused = -1;
    watched = (uint64_t)__builtin_thread_pointer();
}

void counted_to_here(void) { watched = 0; }

/* One call of CUDA's, counted: integers and pointers, more than it has do not matter. */
int counted_call(int (*call)(void *, void *, void *, void *, void *), void **with) {
    counted_from_here();
    int status = call(with[0], with[1], with[2], with[3], with[4]);
    counted_to_here();
    return status;
}
