/* A library that calls CUDA when it is loaded: before the interpreter begins, as a program that embeds one may. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void loaded(void) {
    const char *names[] = {"STRANDLINE_TEST_DRIVER", "STRANDLINE_TEST_RUNTIME"};
    for (int i = 0; i < 2; i++) {
        const char *path = getenv(names[i]);
        if (!path || !dlopen(path, RTLD_NOW | RTLD_GLOBAL)) return;
    }
    int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_DEFAULT, "cudaMalloc");
    void *block;
    for (int i = 0; i < 3; i++) printf("before Python: %d\n", allocate(&block, 1 << 20));
    fflush(stdout);
}
