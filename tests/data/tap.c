/* A program that calls HCCL by itself: client RANKS FOLDER FAULT VICTIM. It forks its ranks, which meet by files in FOLDER, make
   calls on two communicators over one stream, and end with "rank N well". With -DLOADED it loads HCCL itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl/acl.h"
#include "hccl/hccl.h"

#ifdef LOADED
static void *hccl;
#define CALL(name) ((__typeof__(&name))dlsym(hccl, #name))
#else
#define CALL(name) name
#endif

/* Long enough to be seen by who looks five times a second. */
enum { ROUNDS = 20, BYTES = 1 << 16 };

static int me, victim;
static const char *fault;

#define OK(call)                                                  \
    do {                                                          \
        int got_ = (int)(call);                                   \
        if (got_ != 0) {                                          \
            printf("rank %d: %s gave %d\n", me, #call, got_);     \
            fflush(stdout);                                       \
            sleep(3); /* As a framework does that has much to end. */ \
            _exit(3);                                             \
        }                                                         \
    } while (0)

static int has(const char *name) { return me == victim && strcmp(fault, name) == 0; }

static HcclComm make(const char *folder, const char *name, uint32_t ranks) {
    char path[512], part[600];
    HcclRootInfo info;
    HcclComm comm;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(part, sizeof part, "%s.part", path);
    if (me == 0) {
        OK(CALL(HcclGetRootInfo)(&info));
        FILE *file = fopen(part, "wb");
        OK(fwrite(&info, sizeof info, 1, file) != 1);
        OK(fclose(file));
        OK(rename(part, path));
    } else {
        FILE *file;
        while (!(file = fopen(path, "rb"))) usleep(2000);
        OK(fread(&info, sizeof info, 1, file) != 1);
        OK(fclose(file));
    }
    OK(CALL(HcclCommInitRootInfo)(ranks, &info, (uint32_t)me, &comm));
    return comm;
}

static void all_reduce(HcclComm comm, aclrtStream stream, void *from, void *to, uint64_t count, HcclDataType type) {
    OK(CALL(HcclAllReduce)(from, to, count, type, HCCL_REDUCE_SUM, comm, stream));
}

static void all_gather(HcclComm comm, aclrtStream stream, void *from, void *to) {
    OK(CALL(HcclAllGather)(from, to, 100, HCCL_DATA_TYPE_INT32, comm, stream));
}

static int rank(uint32_t ranks, const char *folder) {
    aclrtStream stream;
    void *from, *to;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(me));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMalloc(&from, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMalloc(&to, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    if (has("creation")) pause();
    HcclComm first = make(folder, "first", ranks);
    HcclComm second = make(folder, "second", ranks);
    for (int round = 0; round < ROUNDS; round++) {
        all_reduce(first, stream, from, to, 1000, HCCL_DATA_TYPE_FP32);
        all_gather(second, stream, from, to);
        OK(aclrtSynchronizeStream(stream));
        usleep(30000);
    }
    if (has("asleep")) pause();
    if (has("killed")) raise(SIGKILL);
    if (has("exits")) exit(0);
    if (has("stopped")) raise(SIGSTOP);
    if (has("order")) {
        all_gather(second, stream, from, to);
        all_reduce(first, stream, from, to, 1000, HCCL_DATA_TYPE_FP32);
    } else {
        HcclDataType type = has("dtype") ? HCCL_DATA_TYPE_INT32 : HCCL_DATA_TYPE_FP32;
        all_reduce(first, stream, from, to, has("count") ? 999 : 1000, type);
        all_gather(second, stream, from, to);
    }
    OK(CALL(HcclBroadcast)(from, 500, HCCL_DATA_TYPE_FP32, has("root") ? 1 : 0, first, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(CALL(HcclCommDestroy)(second));
    OK(CALL(HcclCommDestroy)(first));
    printf("rank %d well\n", me);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int ranks = atoi(argv[1]), failed = 0, status;
    fault = argv[3];
    victim = atoi(argv[4]);
#ifdef LOADED
    hccl = dlopen("libhccl.so", RTLD_NOW | LOADED);
    if (!hccl) return fprintf(stderr, "%s\n", dlerror()), 2;
#endif
    for (me = 0; me < ranks; me++) {
        if (fork() == 0) {
            char text[16];
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            snprintf(text, sizeof text, "%d", me);
            setenv("RANK", text, 1);
            snprintf(text, sizeof text, "%d", ranks);
            setenv("WORLD_SIZE", text, 1);
            return rank((uint32_t)ranks, argv[2]);
        }
    }
    while (wait(&status) > 0) failed |= status != 0;
    return failed;
}
