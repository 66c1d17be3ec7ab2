// A program that opens a library (argv[1]), which brings a newer libgcc_s.so.1 along than the machine has, as conda environments can. -DLIBGCC: that; -DUSER: the library.
int newer_than_the_machine(void);
#if defined LIBGCC
int newer_than_the_machine(void) { return 7; }
#elif defined USER
int user(void) { return newer_than_the_machine(); }
#else
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words) {
    void *library = count > 1 ? dlopen(words[1], RTLD_NOW) : 0;
    int (*user)(void) = library ? (int (*)(void))dlsym(library, "user") : 0;
    if (!user) {
        puts(dlerror());
        return 1;
    }
    printf("%d\n", user());
    return 0;
}
#endif
