// Threads in states that a training job's libraries bring about: each function makes CUDA calls from one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

typedef int (*function)();

static function find(const char *name) {
    void *p = dlsym(RTLD_DEFAULT, name);
    if (!p) fprintf(stderr, "no %s\n", name), abort();
    return (function)p;
}

// Every kind of call that is recorded, a refused allocation and a question for the free memory among them.
static void calls(void) {
    void *p = 0, *q = 0, *stream = 0;
    size_t free_bytes, total;
    find("cudaMalloc")(&p, (size_t)1 << 20);
    find("cudaMemGetInfo")(&free_bytes, &total);
    find("cudaStreamCreate")(&stream);
    find("cudaMallocAsync")(&q, (size_t)4096, (void *)0);
    find("cudaFreeAsync")(q, (void *)0);
    find("cudaDeviceSynchronize")();
    find("cudaStreamDestroy")(stream);
    find("cudaFree")(p);
    find("cudaMalloc")(&p, (size_t)1 << 50);
    find("cudaMemGetInfo")(&free_bytes, &total);
    find("cudaGetLastError")();
}

static void *plain(void *unused) { return calls(), (void *)0; }

static void run(void *(*f)(void *), void *argument, size_t stack) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (stack && pthread_attr_setstacksize(&attributes, stack)) printf("no stack of %zu\n", stack);
    if (pthread_create(&thread, &attributes, f, argument)) printf("no thread\n");
    else pthread_join(thread, 0);
}

void no_python(long unused) { run(plain, 0, 0); }
void small_stack(long bytes) { run(plain, 0, bytes); }

// A Python state, no Python frame, and not the GIL: what a thread of autograd's has.
static void *no_frame_thread(void *unused) {
    int held = find("PyGILState_Ensure")();
    void *(*save)(void) = (void *(*)(void))find("PyEval_SaveThread");
    void (*restore)(void *) = (void (*)(void *))find("PyEval_RestoreThread");
    void *state = save();
    calls();
    restore(state);
    find("PyGILState_Release")(held);
    return 0;
}
void no_frame(long unused) { run(no_frame_thread, 0, 0); }

static void handler(int unused) { calls(); }
void signal_handler(long unused) { signal(SIGUSR1, handler), raise(SIGUSR1); }

// A page that must not be touched lies below.
static char *stack_of(long bytes) {
    char *p = mmap(0, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(p, 4096, PROT_NONE);
    return p + 4096;
}

// So many bytes for the handler, beside what this processor's registers take of them.
void alternate_stack(long bytes) {
    bytes = bytes + getauxval(AT_MINSIGSTKSZ) + 4095 & -4096;
    stack_t stack = {.ss_sp = stack_of(bytes), .ss_size = bytes};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&stack, 0)) printf("no alternate stack\n");
    sigaction(SIGUSR2, &action, 0);
    raise(SIGUSR2);
}

static ucontext_t outside, inside;
void context(long bytes) {
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack_of(bytes);
    inside.uc_stack.ss_size = bytes;
    inside.uc_link = &outside;
    makecontext(&inside, calls, 0);
    swapcontext(&outside, &inside);
}

static pthread_key_t key;
static int rounds;
static void destructor(void *value) {
    calls();
    if (++rounds < 4) pthread_setspecific(key, value);
}
static void *with_destructor(void *before) {
    pthread_setspecific(key, (void *)1);
    if (before) calls();
    return 0;
}
void tls_destructor(long unused) {
    pthread_key_create(&key, destructor);
    run(with_destructor, 0, 0);
    rounds = 0;
    run(with_destructor, (void *)1, 0);
}

static void at_end(void) { calls(), fputs("called at the end\n", stderr); }
void at_exit(long unused) { atexit(at_end); }

// What a C++ library does as the process ends: its objects' destructors, and then its own.
extern int __cxa_atexit(void (*)(void *), void *, void *);
extern void *__dso_handle;
static int is_destroyed_last;
static void destroyed(void *unused) { calls(), fputs("an object is destroyed\n", stderr); }
void static_destructors(long unused) {
    is_destroyed_last = 1;
    __cxa_atexit(destroyed, 0, &__dso_handle);
}
__attribute__((destructor)) static void unloaded(void) {
    if (is_destroyed_last) calls(), fputs("the library is destroyed\n", stderr);
}

static void *forever(void *unused) { for (;;) calls(); }
void still_running(long n) {
    for (pthread_t t; n--;) pthread_create(&t, 0, forever, 0);
}

void many_threads(long n) {
    pthread_t *threads = malloc(n * sizeof *threads);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 131072);
    long made = 0;
    while (made < n && !pthread_create(&threads[made], &attributes, plain, 0)) made++;
    for (long i = 0; i < made; i++) pthread_join(threads[i], 0);
    printf("%ld threads\n", made);
}

// A child that calls CUDA, and one that is made while other threads are in our hooks.
void forks(long n) {
    for (long i = 0; i < n; i++) {
        int status;
        pid_t child = fork();
        if (!child) calls(), _exit(0);
        waitpid(child, &status, 0);
        if (status) printf("child %x\n", status);
    }
}
static volatile int stop;
static void *busy(void *unused) {
    while (!stop) calls();
    return 0;
}
void fork_in_a_hook(long n) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, busy, 0);
    for (long i = 0; i < n; i++) {
        int status;
        pid_t child = fork();
        if (!child) _exit(7);
        waitpid(child, &status, 0);
        if (status != 7 << 8) printf("child %x\n", status);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
}
void vforks(long n) {
    for (long i = 0; i < n; i++) {
        int status;
        pid_t child = vfork();
        if (!child) execl("/bin/true", "true", (char *)0), _exit(1);
        waitpid(child, &status, 0);
        if (status) printf("child %x\n", status);
    }
}

// Children of which neither the C library nor whoever asked it to be told of forks hears: one with a copy of everything, and one that has the memory
// itself while its parent waits.
void raw_forks(long n) {
    for (long i = 0; i < n; i++) {
        int status;
        pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (!child) calls(), _exit(0);
        waitpid(child, &status, 0);
        if (status) printf("child %x\n", status);
        calls();
    }
}
static int in_clone(void *unused) { return calls(), 0; }
void raw_clones(long n) {
    for (long i = 0; i < n; i++) {
        int status;
        pid_t child = clone(in_clone, stack_of(262144) + 262144, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
        waitpid(child, &status, 0);
        if (status) printf("child %x\n", status);
    }
}

// A thread that is to end, and calls CUDA before it comes to where it may: none of what we do for it may be such a place.
static void *ends_soon(void *how) {
    if (how) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0), pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
    pthread_cancel(pthread_self());
    for (int i = 0; i < 50; i++) calls();
    fputs("called, ", stdout);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, 0);
    pthread_testcancel();
    return 0;
}
void cancelled(long asynchronously) {
    pthread_t thread;
    void *result = 0;
    pthread_create(&thread, 0, ends_soon, (void *)asynchronously);
    pthread_join(thread, &result);
    puts(result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
}

// What CUDA calls back, on a thread of its own.
static void called_back(void *thread) { calls(), *(pthread_t *)thread = pthread_self(); }
static void called_with_status(void *stream, int status, void *thread) { called_back(thread); }
void callback(long unused) {
    pthread_t threads[] = {pthread_self(), pthread_self()};
    printf("%d", find("cudaLaunchHostFunc")((void *)0, called_back, &threads[0]));
    printf(" %d", find("cudaStreamAddCallback")((void *)0, called_with_status, &threads[1], 0));
    find("cudaDeviceSynchronize")();
    for (int i = 0; i < 2; i++) fputs(pthread_equal(threads[i], pthread_self()) ? " here" : " elsewhere", stdout);
    puts("");
}

// Out of a handler that interrupted whatever ran, back to here.
static sigjmp_buf back;
static void jump(int unused) { siglongjmp(back, 1); }
void long_jump(long n) {
    signal(SIGUSR1, jump);
    for (long i = 0; i < n; i++)
        if (!sigsetjmp(back, 1)) calls(), raise(SIGUSR1);
}

// What real CUDA answers with an error.
void null_arguments(long unused) {
    printf("%d %d", find("cudaMalloc")((void *)0, (size_t)4096), find("cudaStreamCreate")((void *)0));
    printf(" %d %d\n", find("cudaFree")((void *)0), find("cudaMemGetInfo")((void *)0, (void *)0));
    find("cudaGetLastError")();
}

void here(long unused) { calls(); }
