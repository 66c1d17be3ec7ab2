/* A program without CUDA, in any C library. */
#include <stdio.h>

int main(int argc, char **argv) {
    printf("%s\n", argv[argc - 1]);
    fprintf(stderr, "said\n");
    return 7;
}
