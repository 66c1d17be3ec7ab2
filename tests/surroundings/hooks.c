/* Somebody else's library before a job's functions, as profilers, allocators and GPU sharers are. It says at the end how often it was called.

   -DALLOCATOR   malloc, calloc, realloc and free
   -DLOOKUP      dlsym itself, and the memory of CUDA: whoever looks cudaMalloc or cuMemAlloc_v2 up gets ours
   -DCALLS       dlsym calls on instead of jumping on, so RTLD_NEXT means: behind this library, whoever asks */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static unsigned long calls;

#ifdef ALLOCATOR
static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t), *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static char early[65536] __attribute__((aligned(16)));
static size_t used;
static __thread int looking;

static void *from_early(size_t n) {
    size_t at = __atomic_fetch_add(&used, (n + 31) & ~(size_t)15, __ATOMIC_RELAXED);
    return at + n <= sizeof early ? early + at : NULL;
}

static int ready(void) {
    if (real_free) return 1;
    if (looking) return 0; /* dlsym itself allocates */
    looking = 1;
    real_malloc = dlsym(RTLD_NEXT, "malloc");
    real_calloc = dlsym(RTLD_NEXT, "calloc");
    real_realloc = dlsym(RTLD_NEXT, "realloc");
    real_free = dlsym(RTLD_NEXT, "free");
    looking = 0;
    return 1;
}

static int is_early(void *p) { return (char *)p >= early && (char *)p < early + sizeof early; }
#define COUNT __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED)

void *malloc(size_t n) { COUNT; return ready() ? real_malloc(n) : from_early(n); }
void *calloc(size_t n, size_t size) { COUNT; return ready() ? real_calloc(n, size) : from_early(n * size); }
void *realloc(void *p, size_t n) {
    COUNT;
    if (!ready()) return from_early(n);
    if (!is_early(p)) return real_realloc(p, n);
    void *q = real_malloc(n);
    size_t left = early + sizeof early - (char *)p;
    if (q) memcpy(q, p, n < left ? n : left);
    return q;
}
void free(void *p) { COUNT; if (!is_early(p) && ready()) real_free(p); }
#endif

#ifdef LOOKUP
typedef void *(*Dlsym)(void *, const char *);
typedef int (*Malloc)(void **, size_t);
static Dlsym real_dlsym;
static Malloc real_runtime, real_driver;
static unsigned long runtime, driver;

static Dlsym find(void) {
    if (!real_dlsym) real_dlsym = (Dlsym)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real_dlsym;
}

int cudaMalloc(void **p, size_t n) {
    __atomic_fetch_add(&runtime, 1, __ATOMIC_RELAXED);
    if (!real_runtime) real_runtime = (Malloc)find()(RTLD_NEXT, "cudaMalloc");
    if (!real_runtime) { /* PyTorch opens it for itself alone */
        void *library = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
        real_runtime = library ? (Malloc)find()(library, "cudaMalloc") : NULL;
    }
    return real_runtime ? real_runtime(p, n) : 3;
}

int cuMemAlloc_v2(void **p, size_t n) {
    __atomic_fetch_add(&driver, 1, __ATOMIC_RELAXED);
    return real_driver ? real_driver(p, n) : 3;
}

void *dlsym(void *library, const char *name) {
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    int ask = library != RTLD_NEXT && library != RTLD_DEFAULT && !strcmp(name, "cuMemAlloc_v2");
    if (ask) {
        void *found = find()(library, name);
        if (!found) return NULL;
        if (found != (void *)cuMemAlloc_v2) real_driver = (Malloc)found;
        return (void *)cuMemAlloc_v2;
    }
#ifdef CALLS
    void *volatile found = find()(library, name);
    return found;
#else
    return find()(library, name);
#endif
}
#endif

__attribute__((destructor)) static void said(void) {
    if (!calls) return;
#ifdef LOOKUP
    char line[99];
    int n = snprintf(line, sizeof line, "hooks: cudaMalloc %lu, cuMemAlloc %lu\n", runtime, driver);
    if (write(2, line, n)) {}
#else
    if (write(2, "hooks: called\n", 14)) {}
#endif
}
