// Threads that are ended while they wait in a call (at a place where that may happen, and anywhere), and while they do nothing but call.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemGetInfo(size_t *, size_t *);
int cudaStreamSynchronize(void *), cudaEventSynchronize(void *), cudaDeviceSynchronize(void);
int cudaMallocAsync(void **, size_t, void *), cudaFreeAsync(void *, void *);

static int anywhere;
static volatile int begun;

static void *waits(void *which) {
    void *p;
    size_t n;
    if (anywhere) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    begun = 1;
    switch ((long)which) {
    case 0: cudaStreamSynchronize(0); break;
    case 1: cudaEventSynchronize(&n); break;
    case 2: cudaMemGetInfo(&n, &n); break;
    case 3: cudaMallocAsync(&p, 64, 0); break;
    default: cudaFreeAsync(&n, 0);
    }
    return 0;
}

static void *calls(void *unused) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    for (begun = 1;;) cudaDeviceSynchronize();
}

static int ended(void *(*body)(void *), long which, int microseconds) {
    pthread_t thread;
    void *result = 0, *p = 0;
    begun = 0;
    pthread_create(&thread, 0, body, (void *)which);
    while (!begun) usleep(100);
    usleep(microseconds);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    cudaMalloc(&p, 4096), cudaFree(p);
    return result == PTHREAD_CANCELED;
}

int main(void) {
    void *p;
    int n = 0;
    cudaMalloc(&p, 1 << 20);
    for (anywhere = 0; anywhere < 2; anywhere++)
        for (long which = 0; which < 5; which++) n += ended(waits, which, 5000);
    printf("%d in a call\n", n);
    for (int i = n = 0; i < 100; i++) n += ended(calls, 0, i * 7);
    printf("%d anywhere\n", n);
    cudaFree(p);
    return 0;
}
