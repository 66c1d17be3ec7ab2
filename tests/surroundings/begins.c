/* Somebody else's library that begins at the first malloc, as the leak sanitizer's does: until then its functions for signals must not be called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t);
static int begun;

void *malloc(size_t size) { begun = 1; return __libc_malloc(size); }

static void *real(const char *name) {
    if (!begun) abort();
    return dlsym(RTLD_NEXT, name);
}
int sigaction(int n, const struct sigaction *new, struct sigaction *old) {
    return ((int (*)(int, const struct sigaction *, struct sigaction *))real("sigaction"))(n, new, old);
}
sighandler_t signal(int n, sighandler_t handler) { return ((sighandler_t (*)(int, sighandler_t))real("signal"))(n, handler); }
