/* A program that dies in one of several ways, or waits to be killed: job HOW.
 *   hook     in strandline's own code, in cudaMemGetInfo: the memory that the hook writes its record to may only be read any more
 *   real     in the real cudaMemGetInfo, which is given a bad pointer
 *   null     of its own null pointer
 *   writer   in strandline's writer thread, whose stack is taken away
 *   aborts   by abort()
 *   held     a thread stays in that code of strandline's, in a handler of the program's for SIGSEGV
 *   loop     four threads allocate and free without end
 *   clean    not at all
 * Before it, steps enough to be judged, none of which keeps memory. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

extern int cudaMemGetInfo(size_t *, size_t *), cudaMalloc(void **, size_t), cudaFree(void *);

static void pairs(int n) {
    for (int i = 0; n < 0 || i < n; i++) {
        void *p = 0;
        if (cudaMalloc(&p, 1 << 20)) abort();
        cudaFree(p);
    }
}

static int read_into(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "r");
    int got = file && fgets(text, size, file);
    if (file) fclose(file);
    return got;
}

static void *forever(void *unused) { return pairs(-1), unused; }

/* The page that this thread's next record goes to, in the first ring of strandline's shared memory: where src/format/region.rs says. */
static int spoil_the_ring(void) {
    char line[4096], *base = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (!base && fgets(line, sizeof line, maps))
        if (strstr(line, " rw-s ") && strstr(line, "strandline-")) sscanf(line, "%p", (void **)&base);
    fclose(maps);
    if (!base || memcmp(base, "STRANDRG", 8)) return 1;
    uint64_t lanes = *(uint64_t *)(base + 48), definitions = *(uint64_t *)(base + 72), head = *(uint64_t *)(base + 4096);
    size_t slots = (4096 + (lanes + 1) * 256 + 4095) / 4096 * 4096 + definitions;
    return mprotect(base + slots + head * 64 / 4096 * 4096, 4096, PROT_READ);
}

/* Takes away the stack of the thread that writes the recording, where that waits: /proc/self/task/TID/syscall ends with its stack pointer and
 * where it goes on. */
static int starve_the_writer(void) {
    /* On a busy machine it has not its name yet; and it yields before it waits, so that it is ready to run for seconds, until it goes first. */
    for (int tries = 0; tries < 10000; tries++, usleep(1000)) {
        struct dirent **all = 0;
        int count = scandir("/proc/self/task", &all, 0, 0);
        for (int i = 0; i < count; i++) {
            char path[300], text[300] = "";
            snprintf(path, sizeof path, "/proc/self/task/%s/comm", all[i]->d_name);
            if (!read_into(path, text, sizeof text) || strcmp(text, "strandline\n")) continue;
            struct sched_param first = {1};
            sched_setscheduler(atoi(all[i]->d_name), SCHED_FIFO, &first);
            snprintf(path, sizeof path, "/proc/self/task/%s/syscall", all[i]->d_name);
            char *last = read_into(path, text, sizeof text) ? strrchr(text, ' ') : 0;
            if (!last) continue;
            *last = 0;
            uint64_t stack = strtoull(strrchr(text, ' ') + 1, 0, 16) / 4096 * 4096;
            return munmap((void *)stack, 4096);
        }
    }
    return 1;
}

static void hold(int unused) {
    write(1, "held\n", 5);
    for (;;) pause();
}

int main(int n, char **arg) {
    const char *how = n > 1 ? arg[1] : "";
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    void (*step)(uint64_t) = (void (*)(uint64_t))dlsym(RTLD_DEFAULT, "strandline_step");
    for (int i = 1; i <= 20; i++) {
        pairs(3);
        if (step) step(i);
    }
    alarm(120); /* nobody waits longer for it to be killed */
    puts("begun");
    fflush(stdout);
    size_t free_bytes, total;
    int held = !strcmp(how, "held");
    if (held) signal(SIGSEGV, hold);
    if (held || !strcmp(how, "hook")) {
        if (spoil_the_ring()) return 3;
        cudaMemGetInfo(&free_bytes, &total);
    } else if (!strcmp(how, "real")) {
        cudaMemGetInfo((size_t *)8, (size_t *)8);
    } else if (!strcmp(how, "null")) {
        *(volatile int *)0 = 1;
    } else if (!strcmp(how, "writer")) {
        if (starve_the_writer()) return 3;
        pairs(-1);
    } else if (!strcmp(how, "aborts")) {
        abort();
    } else if (!strcmp(how, "loop")) {
        pthread_t thread;
        for (int i = 0; i < 4; i++) pthread_create(&thread, 0, forever, 0);
        pthread_join(thread, 0);
    }
    return 0;
}
