/* A chunk of device memory, asked of the driver; 0 where there is none. */
#include <stddef.h>

extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(unsigned long long *, size_t), cuMemGetInfo_v2(size_t *, size_t *);

unsigned long long chunk(size_t bytes) {
    void *context;
    unsigned long long p = 0;
    size_t free, total;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&p, bytes) || cuMemGetInfo_v2(&free, &total)) return 0;
    return p;
}
