/* A program that uses no PyTorch, and reaches CUDA by one of four ways:
 *   runtime  cudart, a library of its own            linked   the driver, by its import
 *   dlsym    the driver, each function by name       static   as a runtime inside the program does: by cuGetProcAddress alone
 *   inside   the same, behind functions of the program by the runtime's names, which all of it calls
 * job ROUTE WHAT STEPS: WHAT is leak, clean, kinds (one of every call), broken (a device that fails at the end), dies or aborts (asks for more than
 * there is, and ends of it), probes (asks for it in every step, does with less, and ends with status 3 for another reason). One line of what it did on
 * stdout. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long addr;
#define MIB ((size_t)1 << 20)
#define MUCH ((size_t)64 << 30) /* more than the card has */

static struct {
    int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *), (*total)(size_t *, int), (*info)(size_t *, size_t *);
    int (*alloc)(addr *, size_t), (*release)(addr), (*pitch)(addr *, size_t *, size_t, size_t, unsigned);
    int (*managed)(addr *, size_t, unsigned), (*async)(addr *, size_t, void *), (*free_async)(addr, void *);
    int (*async_ptsz)(addr *, size_t, void *), (*free_async_ptsz)(addr, void *);
    int (*host)(void **, size_t, unsigned), (*free_host)(void *);
    int (*create)(addr *, size_t, void *, addr), (*drop)(addr), (*reserve)(addr *, size_t, size_t, addr, addr);
    int (*map)(addr, size_t, size_t, addr, addr), (*unmap)(addr, size_t), (*wait)(void);
} cu;

static int aborts;
static void check(int status, const char *what) {
    if (status) { printf("%s: %d\n", what, status); if (aborts) { fflush(stdout); abort(); } exit(1); }
}
#define DO(f, ...) check(cu.f(__VA_ARGS__), #f)

#if defined LINKED || defined RUNTIME
#define MAYBE(r, n) extern r n();
#endif
#ifdef LINKED
extern int cuInit(), cuDevicePrimaryCtxRetain(), cuCtxSetCurrent(), cuDeviceTotalMem_v2(), cuMemGetInfo_v2(), cuMemAlloc_v2(), cuMemFree_v2(),
    cuMemAllocPitch_v2(), cuMemAllocManaged(), cuMemAllocAsync(), cuMemFreeAsync(), cuMemAllocAsync_ptsz(), cuMemFreeAsync_ptsz(),
    cuMemHostAlloc(), cuMemFreeHost(), cuMemCreate(), cuMemRelease(), cuMemAddressReserve(), cuMemMap(), cuMemUnmap(), cuCtxSynchronize();
static void *look_up(const char *name, int per_thread) {
#define IS(f, s) if (!strcmp(name, #f) && (!*#s || per_thread == !strcmp(#s, "_ptsz"))) return (void *)f##s;
    IS(cuInit,) IS(cuDevicePrimaryCtxRetain,) IS(cuCtxSetCurrent,) IS(cuDeviceTotalMem, _v2) IS(cuMemGetInfo, _v2) IS(cuMemAlloc, _v2)
    IS(cuMemFree, _v2) IS(cuMemAllocPitch, _v2) IS(cuMemAllocManaged,) IS(cuMemAllocAsync, _ptsz) IS(cuMemFreeAsync, _ptsz)
    IS(cuMemAllocAsync,) IS(cuMemFreeAsync,) IS(cuMemHostAlloc,) IS(cuMemFreeHost,) IS(cuMemCreate,) IS(cuMemRelease,)
    IS(cuMemAddressReserve,) IS(cuMemMap,) IS(cuMemUnmap,) IS(cuCtxSynchronize,)
    return NULL;
}
#elif defined RUNTIME
extern int cudaMemGetInfo(size_t *, size_t *), cudaMalloc(addr *, size_t), cudaFree(addr), cudaMallocAsync(addr *, size_t, void *), cudaFreeAsync(addr, void *),
    cudaMallocManaged(addr *, size_t, unsigned), cudaHostAlloc(void **, size_t, unsigned), cudaFreeHost(void *), cudaDeviceSynchronize(void);
static void *look_up(const char *name, int per_thread) {
    (void)per_thread;
    if (!strcmp(name, "cuMemGetInfo")) return (void *)cudaMemGetInfo;
    if (!strcmp(name, "cuMemAlloc")) return (void *)cudaMalloc;
    if (!strcmp(name, "cuMemFree")) return (void *)cudaFree;
    if (!strcmp(name, "cuMemAllocAsync")) return (void *)cudaMallocAsync;
    if (!strcmp(name, "cuMemFreeAsync")) return (void *)cudaFreeAsync;
    if (!strcmp(name, "cuMemAllocManaged")) return (void *)cudaMallocManaged;
    if (!strcmp(name, "cuMemHostAlloc")) return (void *)cudaHostAlloc;
    if (!strcmp(name, "cuMemFreeHost")) return (void *)cudaFreeHost;
    if (!strcmp(name, "cuCtxSynchronize")) return (void *)cudaDeviceSynchronize;
    return NULL;
}
#else
static int by_name;
static void *look_up(const char *name, int per_thread) {
    static void *driver;
    static int (*old)(const char *, void **, int, addr), (*new)(const char *, void **, int, addr, int *);
    char exact[64];
    void *f = NULL;
    if (!driver && !(driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))) return NULL;
    if (by_name) {
        static const char *const versions[] = {"cuMemAlloc", "cuMemFree", "cuMemAllocPitch", "cuMemGetInfo", "cuDeviceTotalMem", NULL};
        const char *ending = per_thread ? "_ptsz" : "";
        for (int i = 0; versions[i]; i++) if (!strcmp(name, versions[i])) ending = "_v2";
        snprintf(exact, sizeof exact, "%s%s", name, ending);
        return dlsym(driver, exact);
    }
    if (!new) { /* in the order in which NVIDIA's runtime does it */
        int (*first)(const char *, void **, int, addr, int *) = dlsym(driver, "cuGetProcAddress_v2");
        int found = 7;
        if (!first || first("cuGetProcAddress", (void **)&old, 11030, 0, &found) || first("cuGetProcAddress", (void **)&new, 12000, 0, &found)) return NULL;
        if (found || old("cuInit", &f, 11030, 0) || !f) return NULL;
    }
    return new(name, &f, 13000, per_thread ? 2 : 1, NULL) ? NULL : f;
}
#endif

#ifdef INSIDE
__attribute__((noinline)) static int libcudart_static_1f2e(addr *p, size_t size) { int s = cu.alloc(p, size); __asm__ volatile("" : "+r"(s)); return s; }
__attribute__((noinline)) static int cudaMalloc(addr *p, size_t size) { int s = libcudart_static_1f2e(p, size); __asm__ volatile("" : "+r"(s)); return s; }
#define ALLOC(p, size) check(cudaMalloc(p, size), "alloc")
#else
#define ALLOC(p, size) DO(alloc, p, size)
#endif

__attribute__((noinline)) static addr keep(size_t size) {
    addr p = 0;
    ALLOC(&p, size);
    return p;
}

/* Another line that asks for as much, and for as long. */
__attribute__((noinline)) static addr build(size_t size) {
    addr p = 0;
    ALLOC(&p, size);
    return p;
}

__attribute__((noinline)) static void enlarge(void) {
    keep(MUCH);
}

__attribute__((noinline)) static addr scratch(size_t size) {
    addr p = 0;
    DO(async, &p, size, NULL);
    return p;
}

static void kinds(void) {
    addr p[8] = {0}, handle, at;
    void *h;
    size_t pitch;
    int properties[8] = {1, 0, 1, 0};
    DO(managed, &p[0], 3 * MIB, 1);
    DO(host, &h, 2 * MIB, 0);
    DO(free_host, h);
    if (!cu.create) return;
    DO(pitch, &p[1], &pitch, 1000, 1024, 4);
    DO(async_ptsz, &p[2], 6 * MIB, NULL);
    DO(free_async_ptsz, p[2], NULL);
    DO(create, &handle, 4 * MIB, properties, 0);
    DO(reserve, &at, 4 * MIB, 0, 0, 0);
    DO(map, at, 4 * MIB, 0, handle, 0);
    DO(drop, handle);
    DO(unmap, at, 4 * MIB);
    printf("pitch %zu\n", pitch);
}

int main(int n, char **arg) {
    if (n < 4) return 2;
#if !defined LINKED && !defined RUNTIME
    by_name = !strcmp(arg[1], "dlsym");
#endif
    struct { void *f; const char *name; int per_thread; } all[] = {
        {&cu.init, "cuInit", 0}, {&cu.retain, "cuDevicePrimaryCtxRetain", 0}, {&cu.set_current, "cuCtxSetCurrent", 0},
        {&cu.total, "cuDeviceTotalMem", 0}, {&cu.info, "cuMemGetInfo", 0}, {&cu.alloc, "cuMemAlloc", 0}, {&cu.release, "cuMemFree", 0},
        {&cu.pitch, "cuMemAllocPitch", 0}, {&cu.managed, "cuMemAllocManaged", 0}, {&cu.async, "cuMemAllocAsync", 0},
        {&cu.free_async, "cuMemFreeAsync", 0}, {&cu.async_ptsz, "cuMemAllocAsync", 1}, {&cu.free_async_ptsz, "cuMemFreeAsync", 1},
        {&cu.host, "cuMemHostAlloc", 0}, {&cu.free_host, "cuMemFreeHost", 0}, {&cu.create, "cuMemCreate", 0}, {&cu.drop, "cuMemRelease", 0},
        {&cu.reserve, "cuMemAddressReserve", 0}, {&cu.map, "cuMemMap", 0}, {&cu.unmap, "cuMemUnmap", 0},
        {&cu.wait, "cuCtxSynchronize", 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *(void **)all[i].f = look_up(all[i].name, all[i].per_thread);
    int device = getenv("JOB_DEVICE") ? atoi(getenv("JOB_DEVICE")) : 0;
    if (cu.init) {
        void *context;
        size_t total;
        DO(init, 0);
        DO(total, &total, device);
        DO(retain, &context, device);
        DO(set_current, context);
    }
    void (*step)(uint64_t) = (void (*)(uint64_t))dlsym(RTLD_DEFAULT, "strandline_step");
    addr weights = build(32 * MIB);
    int leaks = !strcmp(arg[2], "leak"), steps = atoi(arg[3]);
    for (int i = 1; i <= steps; i++) {
        addr a = scratch(3 * MIB), b = scratch(5 * MIB + 1);
        addr kept = keep(8 * MIB);
        addr none = 0;
        if (!strcmp(arg[2], "probes") && (cu.alloc(&none, MUCH) != 2 || cu.async(&none, MUCH, NULL) != 2)) return 9;
        if (!leaks) DO(release, kept);
        DO(free_async, a, NULL);
        DO(free_async, b, NULL);
        if (step) step(i);
    }
    if (!strcmp(arg[2], "kinds")) kinds();
    if (!strcmp(arg[2], "dies")) enlarge();
    if (!strcmp(arg[2], "aborts")) { aborts = 1; enlarge(); }
    if (!strcmp(arg[2], "probes")) { keep(MIB); exit(3); }
    if (!strcmp(arg[2], "broken")) { /* a kernel goes wrong; everything fails from then on */
        void (*go_wrong)(int) = (void (*)(int))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "strandline_sim_break");
        go_wrong(719);
        int first = cu.wait(), second = cu.wait();
        printf("%d %d\n", first, second);
        return 0;
    }
    size_t free_bytes, total;
    DO(info, &free_bytes, &total);
    printf("%d steps, used %zu MiB\n", steps, (total - free_bytes) / MIB);
    DO(release, weights);
    return 0;
}
