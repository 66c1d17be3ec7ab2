/* What a program sees of CUDA beside results: `errno`, which form of a function answers, which of two runtimes. Prints it, to be compared with
 * and without strandline. One source for all parts:
 *   -DDRIVER      libcuda.so.1, whose functions say which of them was called
 *   -DRUNTIME=N   libcudart.so.N, which keeps the error of its own failed launches
 *   -DUSER=N      a library that is linked to that runtime
 *   (nothing)     the program: undisturbed FOLDER, with the libraries in FOLDER */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef DRIVER

static int answers(const char *what) { printf("  driver: %s\n", what); return 0; }
int cuInit(unsigned flags) { return 0; }
int cuMemAlloc_v2(void **p, size_t n) { static char *next = (char *)0x7f0000000000; *p = next; next += n; return 0; }
int cuMemFree_v2(void *p) { return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = *t = 1 << 30; return 0; }
int cuMemcpyDtoHAsync_v2(void *to, void *from, size_t n, void *s) { return answers("copy on the legacy default stream"); }
int cuMemcpyDtoHAsync_v2_ptsz(void *to, void *from, size_t n, void *s) { return answers("copy on the thread's own default stream"); }
int cuCtxSynchronize(void) { return answers("the current context is waited for"); }
int cuCtxSynchronize_v2(void *context) { return answers(context == (void *)42 ? "context 42 is waited for" : "another context is waited for"); }
int cuGetProcAddress_v2(const char *name, void **f, int version, unsigned long long flags, int *status) {
    int own = (flags & 2) != 0 && version >= 7000;
    *f = !strcmp(name, "cuMemcpyDtoHAsync") ? own ? (void *)cuMemcpyDtoHAsync_v2_ptsz : (void *)cuMemcpyDtoHAsync_v2
       : !strcmp(name, "cuCtxSynchronize") ? version >= 13000 ? (void *)cuCtxSynchronize_v2 : (void *)cuCtxSynchronize : NULL;
    return *f ? 0 : 500;
}

#elif defined RUNTIME

static __thread int last;
int cudaGetLastError(void) { int e = last; last = 0; return e; }
int cudaLaunchKernel(void *f) { return last = f ? 0 : 98; }
int cudaSetDevice(int device) { printf("  runtime %d: device %d\n", RUNTIME, device); return 0; }
int cudaMalloc(void **p, size_t n) { static char *next = (char *)((long)RUNTIME << 40); *p = next; next += n; return 0; }
int cudaFree(void *p) { printf("  runtime %d: its own block %d\n", RUNTIME, (long)p >> 40 == RUNTIME); return 0; }
int cudaGetDeviceProperties(char *p, int device) { memset(p, RUNTIME, RUNTIME); return 0; }

#elif defined USER

int cudaGetLastError(void), cudaLaunchKernel(void *), cudaSetDevice(int), cudaMalloc(void **, size_t), cudaFree(void *), cudaGetDeviceProperties(char *, int);
int launch(int works) { return cudaLaunchKernel(works ? "kernel" : NULL); }
int last_error(void) { return cudaGetLastError(); }
void others(void) {
    void *p;
    char properties[64] = {0};
    cudaSetDevice(1);
    cudaMalloc(&p, 1 << 20);
    cudaFree(p);
    cudaGetDeviceProperties(properties, 0);
    printf("  properties of %zu bytes\n", strlen(properties));
}

#else

int cuMemAlloc_v2(void **, size_t), cuMemFree_v2(void *), cuMemGetInfo_v2(size_t *, size_t *), cuCtxSynchronize(void);
int cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);

static void *errors(void *whose) {
    void *p;
    size_t free, total;
#define SAYS(call) errno = 77; call; printf("%s: errno %d after %s\n", (char *)whose, errno, #call)
    SAYS(cuMemAlloc_v2(&p, 1 << 20));
    SAYS(cuMemGetInfo_v2(&free, &total));
    SAYS(cuCtxSynchronize());
    SAYS(cuMemFree_v2(p));
    return NULL;
}

static void *entry(const char *name, int version, unsigned long long flags) {
    void *f = NULL;
    int status = cuGetProcAddress_v2(name, &f, version, flags, NULL);
    printf("%s of %d, flags %llu: %d\n", name, version, flags, status);
    return f;
}

static void work(void) { void *p; for (int i = 0; i < 3; i++) cuMemAlloc_v2(&p, 1 << 20); asm volatile(""); }
/* on a stack of its own, above which nothing can be read, as coroutines have it */
static __attribute__((noinline)) void on_stack(char *top) {
    asm volatile("mov %%rsp, %%rbx\n mov %0, %%rsp\n call *%1\n mov %%rbx, %%rsp" :: "r"(top), "r"(work)
                 : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "memory", "cc");
}
static void *elsewhere(void *unused) {
    char *m = mmap(NULL, 2 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(m, 1 << 20, PROT_READ | PROT_WRITE);
    work();
    on_stack(m + (1 << 20));
    work();
    puts("switched stacks");
    return NULL;
}

/* a child that runs no handlers of forks, calls CUDA and ends in an orderly way */
static void without_handlers(void) {
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!child) { work(); exit(3); }
    int status;
    waitpid(child, &status, 0);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("child: %d, %s\n", WEXITSTATUS(status), ended.tv_sec - begun.tv_sec < 8 ? "at once" : "late");
}

struct user { int (*launch)(int), (*last_error)(void); void (*others)(void); };
static struct user user(const char *folder, int version) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libuser%d.so", folder, version);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) { printf("%s\n", dlerror()); exit(1); }
    return (struct user){dlsym(library, "launch"), dlsym(library, "last_error"), dlsym(library, "others")};
}

int main(int n, char **arguments) {
    clearenv(); /* the recording lies where it was asked for when the process began */
    feenableexcept(FE_ALL_EXCEPT);
    errors("first thread");
    fedisableexcept(FE_ALL_EXCEPT);
    pthread_t thread;
    pthread_create(&thread, NULL, errors, "new thread");
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, elsewhere, NULL);
    pthread_join(thread, NULL);
    fflush(stdout);
    without_handlers();

    int (*copy)(void *, void *, size_t, void *) = entry("cuMemcpyDtoHAsync", 3020, 0);
    int (*own_copy)(void *, void *, size_t, void *) = entry("cuMemcpyDtoHAsync", 7000, 2);
    copy(NULL, NULL, 0, NULL);
    own_copy(NULL, NULL, 0, NULL);
    ((int (*)(void))entry("cuCtxSynchronize", 12000, 0))();
    ((int (*)(void *))entry("cuCtxSynchronize", 13000, 0))((void *)42);

    struct user a = user(arguments[1], 13), b = user(arguments[1], 12);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* what is loaded is looked at every ten milliseconds */
    for (int i = 0; i < 2; i++) {
        int failed = b.launch(0), worked = a.launch(1);
        printf("launched: %d %d", failed, worked);
        int of_a = a.last_error(), of_b = b.last_error(), again = b.last_error();
        printf("; last errors %d %d %d\n", of_a, of_b, again);
        a.others();
        b.others();
    }
    return 0;
}

#endif
