/* Somebody else's library that writes when a process ends, as profilers and allocators with statistics do. */
#include <stdio.h>
#include <stdlib.h>

static void at_exit(void) { fprintf(stderr, "ending: atexit\n"); }
__attribute__((constructor)) static void begin(void) { atexit(at_exit); }
__attribute__((destructor)) static void end(void) { fprintf(stderr, "ending: destructor\n"); }
