/* A program that calls HCCL by itself: client RANKS FOLDER FAULT VICTIM. It forks its ranks, which meet by files in FOLDER, make
   calls on two communicators over one stream, and end with "rank N well". With -DLOADED it loads HCCL itself. FAULT "many" makes
   no fault but 10,000 calls a rank, on eight communicators from four threads. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
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

enum { THREADS = 4, COMMS_EACH = 2, CALLS_EACH = 1250, CALLS_AHEAD = 50 };

struct Work {
    HcclComm comms[COMMS_EACH];
    void *from, *to;
};

static void *work(void *given) {
    struct Work *work = given;
    aclrtStream stream;
    OK(aclrtSetDevice(me));
    OK(aclrtCreateStream(&stream));
    for (int call = 1; call <= CALLS_EACH; call++) {
        for (int one = 0; one < COMMS_EACH; one++)
            all_reduce(work->comms[one], stream, work->from, work->to, 100, HCCL_DATA_TYPE_FP32);
        if (call % CALLS_AHEAD == 0) OK(aclrtSynchronizeStream(stream));
    }
    return NULL;
}

static void many(uint32_t ranks, const char *folder) {
    struct Work works[THREADS];
    pthread_t threads[THREADS];
    char name[32];
    for (int at = 0; at < THREADS * COMMS_EACH; at++) {
        struct Work *one = &works[at / COMMS_EACH];
        snprintf(name, sizeof name, "many-%d", at);
        one->comms[at % COMMS_EACH] = make(folder, name, ranks);
    }
    for (int at = 0; at < THREADS; at++) {
        OK(aclrtMalloc(&works[at].from, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
        OK(aclrtMalloc(&works[at].to, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
        OK(pthread_create(&threads[at], NULL, work, &works[at]));
    }
    for (int at = 0; at < THREADS; at++) OK(pthread_join(threads[at], NULL));
    for (int at = 0; at < THREADS * COMMS_EACH; at++)
        OK(CALL(HcclCommDestroy)(works[at / COMMS_EACH].comms[at % COMMS_EACH]));
}

/* A process of the program that makes no calls, as workers are that load data. It ends half a second after its parent. */
static pid_t start_worker(void) {
    pid_t parent = getpid(), worker = fork();
    if (worker != 0) return worker;
    while (getppid() == parent) usleep(20000);
    usleep(500000);
    _exit(0);
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
    if (strcmp(fault, "many") == 0) many(ranks, folder);
    HcclComm first = make(folder, "first", ranks);
    HcclComm second = make(folder, "second", ranks);
    for (int round = 0; round < ROUNDS; round++) {
        all_reduce(first, stream, from, to, 1000, HCCL_DATA_TYPE_FP32);
        all_gather(second, stream, from, to);
        OK(aclrtSynchronizeStream(stream));
        usleep(30000);
    }
    pid_t worker = 0;
    if (strcmp(fault, "workers") == 0 || has("killed-beside-worker")) {
        worker = start_worker();
        OK(system("true"));
    }
    if (has("asleep")) pause();
    if (has("killed") || has("killed-beside-worker")) raise(SIGKILL);
    if (has("exits")) exit(0);
    if (has("crashes")) raise(SIGSEGV);
    if (has("fails")) exit(3);
    if (strcmp(fault, "ended") == 0) pause();
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
    if (worker != 0) {
        kill(worker, SIGKILL);
        waitpid(worker, NULL, 0);
    }
    printf("rank %d well\n", me);
    return 0;
}

enum { RANKS_MAX = 64 };
static pid_t pids[RANKS_MAX];

/* Waits as launchers do that look ten times a second, and end all ranks when one fails or, some, at their own wish. */
static int launch(int ranks) {
    int failed = 0, ends = strcmp(fault, "crashes") == 0 || strcmp(fault, "fails") == 0;
    siginfo_t found;
    if (strcmp(fault, "ended") == 0) {
        sleep(1);
        for (int one = 0; one < ranks; one++) kill(pids[one], SIGTERM);
    }
    while (waitid(P_ALL, 0, &found, WEXITED | WNOWAIT) == 0) {
        int is_bad = found.si_code != CLD_EXITED || found.si_status != 0;
        usleep(150000);
        waitpid(found.si_pid, NULL, 0);
        for (int one = 0; is_bad && ends && one < ranks; one++)
            if (pids[one] != found.si_pid) kill(pids[one], SIGTERM);
        ends = ends && !is_bad;
        failed |= is_bad;
    }
    return failed;
}

int main(int argc, char **argv) {
    if (argc != 5 || atoi(argv[1]) > RANKS_MAX) return 2;
    int ranks = atoi(argv[1]);
    fault = argv[3];
    victim = atoi(argv[4]);
#ifdef LOADED
    hccl = dlopen("libhccl.so", RTLD_NOW | LOADED);
    if (!hccl) return fprintf(stderr, "%s\n", dlerror()), 2;
#endif
    for (me = 0; me < ranks; me++) {
        pids[me] = fork();
        if (pids[me] == 0) {
            char text[16];
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            snprintf(text, sizeof text, "%d", me);
            setenv("RANK", text, 1);
            snprintf(text, sizeof text, "%d", ranks);
            setenv("WORLD_SIZE", text, 1);
            return rank((uint32_t)ranks, argv[2]);
        }
    }
    return launch(ranks);
}
