/* Opens a library and says which names it finds there: finds LIBRARY NAME... Makes a communicator by it, so that a tap shows. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words) {
    static char info[4108];
    void *comm, *library = dlopen(words[1], RTLD_NOW);
    int (*make)(unsigned, const void *, unsigned, void **);
    if (!library) return printf("%s\n", dlerror()), 1;
    for (int at = 2; at < count; at++) printf("%s %s\n", words[at], dlsym(library, words[at]) ? "found" : "missing");
    make = (int (*)(unsigned, const void *, unsigned, void **))dlsym(library, "HcclCommInitRootInfo");
    printf("made %d\n", make ? make(1, info, 0, &comm) : -1);
    fflush(stdout);
    usleep(300000); /* Long enough to be seen by who looks five times a second. */
    return 0;
}
