/* A disk that is full by quota, fails or stalls, for recordings alone: whoever writes to one. As variables:

   DISK_ERROR=N      writes fail with this error
   DISK_ROOM=BYTES   before that so many bytes fit
   DISK_STALLS=PATH  writes wait while there is a file of that name */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int refuses(int file, size_t end) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 7 || memcmp(path + n - 7, ".strand", 7)) return 0;
    const char *error = getenv("DISK_ERROR"), *room = getenv("DISK_ROOM"), *stalls = getenv("DISK_STALLS");
    while (stalls && !access(stalls, F_OK)) usleep(1000);
    if (!error || (room && end <= strtoul(room, NULL, 10))) return 0;
    errno = atoi(error);
    return 1;
}

ssize_t pwrite64(int file, const void *from, size_t n, off64_t at) {
    return refuses(file, at + n) ? -1 : syscall(SYS_pwrite64, file, from, n, at);
}
