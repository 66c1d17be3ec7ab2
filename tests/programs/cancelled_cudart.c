// A runtime whose calls a thread can be ended in, as it can in a driver that waits in the kernel: only what is asynchronous and safe is done.
#include <stdlib.h>
#include <unistd.h>

int cudaMalloc(void **p, size_t n) { return (*p = malloc(n)) ? 0 : 2; }
int cudaFree(void *p) { return free(p), 0; }
static int forever(void) { for (;;) pause(); }
int cudaStreamSynchronize(void *stream) { return forever(); }
int cudaEventSynchronize(void *event) { return forever(); }
int cudaMemGetInfo(size_t *free_bytes, size_t *total) { return forever(); }
int cudaMallocAsync(void **p, size_t n, void *stream) { return forever(); }
int cudaFreeAsync(void *p, void *stream) { return forever(); }
int cudaDeviceSynchronize(void) { return 0; }
