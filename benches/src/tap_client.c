/* Times calls of HCCL on a communicator of one rank: client CALLS. Prints nanoseconds a call. With -DEMPTY it is a library
   instead, an HCCL that does nothing. */
#include <stdint.h>

#ifdef EMPTY
int HcclGetRootInfo(void *info) { return (void)info, 0; }
int HcclCommInitRootInfo(uint32_t size, const void *info, uint32_t rank, void **comm) {
    static char made;
    return (void)size, (void)info, (void)rank, *comm = &made, 0;
}
int HcclAllReduce(void *from, void *to, uint64_t count, int type, int op, void *comm, void *stream) {
    return (void)from, (void)to, (void)count, (void)type, (void)op, (void)comm, (void)stream, 0;
}
#else
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define OK(call)                                                                 \
    do {                                                                         \
        int got_ = (call);                                                       \
        if (got_ != 0) return fprintf(stderr, "%s gave %d\n", #call, got_), 1; \
    } while (0)

enum { BYTES = 1 << 16, AHEAD = 64, ROOT_INFO_BYTES = 4108 };

static void *acl; /* None with the empty library. */

static int synchronize(void *stream) {
    static int (*wait)(void *);
    if (!acl) return 0;
    if (!wait) wait = (int (*)(void *))dlsym(acl, "aclrtSynchronizeStream");
    return wait(stream);
}

int main(int count, char **words) {
    static char info[ROOT_INFO_BYTES];
    void *hccl = dlopen("libhccl.so", RTLD_NOW), *comm, *from = 0, *to = 0, *stream = 0;
    struct timespec begin, end;
    long calls = count > 1 ? atol(words[1]) : 1;
    if (!hccl) return fprintf(stderr, "%s\n", dlerror()), 1;
    acl = dlopen("libascendcl.so", RTLD_NOW);
    if (acl) {
        OK(((int (*)(const char *))dlsym(acl, "aclInit"))(0));
        OK(((int (*)(int))dlsym(acl, "aclrtSetDevice"))(0));
        OK(((int (*)(void **))dlsym(acl, "aclrtCreateStream"))(&stream));
        int (*take)(void **, size_t, int) = (int (*)(void **, size_t, int))dlsym(acl, "aclrtMalloc");
        OK(take(&from, BYTES, 0));
        OK(take(&to, BYTES, 0));
    }
    OK(((int (*)(void *))dlsym(hccl, "HcclGetRootInfo"))(info));
    OK(((int (*)(uint32_t, const void *, uint32_t, void **))dlsym(hccl, "HcclCommInitRootInfo"))(1, info, 0, &comm));
    int (*all_reduce)(void *, void *, uint64_t, int, int, void *, void *) =
        (int (*)(void *, void *, uint64_t, int, int, void *, void *))dlsym(hccl, "HcclAllReduce");
    for (long at = -calls / 10; at < calls; at++) {
        if (at == 0) clock_gettime(CLOCK_MONOTONIC, &begin);
        OK(all_reduce(from, to, 2, 4 /* float32 */, 0 /* sum */, comm, stream));
        if (at % AHEAD == 0) OK(synchronize(stream));
    }
    OK(synchronize(stream));
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    printf("%.1f\n", ns / (double)calls);
    return 0;
}
#endif
