/* What a fault looks like on every rank: faults RANK RANKS ROOT-INFO-FILE SCENARIO MARKS */
#include "common.h"

enum { COUNT = 1000 };

static HcclComm comm;
static aclrtStream stream;
static int rank, ranks;
static void *in, *out;

/* Every rank waits here until all have come: who leaves early is missed by the others. */
static const char *marks;
static void meet(int round) {
    char mark[4096];
    snprintf(mark, sizeof mark, "%s.%d.%d", marks, round, rank);
    FILE *file = fopen(mark, "wb");
    if (!file || fclose(file)) die(__FILE__, __LINE__, mark, 0, 1);
    for (int r = 0; r < ranks; r++) {
        snprintf(mark, sizeof mark, "%s.%d.%d", marks, round, r);
        while (access(mark, F_OK)) usleep(1000);
    }
}

static int is(const char *scenario, const char *name) { return strcmp(scenario, name) == 0; }

static int gather(void) { return HcclAllGather(in, out, COUNT, HCCL_DATA_TYPE_INT32, comm, stream); }
static int reduce(void) {
    return HcclAllReduce(in, out, COUNT, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm, stream);
}
static int synchronize(void) { return aclrtSynchronizeStream(stream); }

static void async_error(int want) {
    HcclResult error = 99;
    OK(HcclGetCommAsyncError(comm, &error));
    WANT(error, want);
}

/* The wait for rank 1 has run out. */
static void timed_out(const char *missing) {
    WANT(synchronize(), 507048);
    TEXT("EI0002", "emulated", "Cluster Exception Location[IP/ID]", missing);
    async_error(HCCL_SUCCESS);
}

static void hang(void) {
    OK(gather());
    OK(synchronize());
    OK(gather());
    if (rank == 1) {
        WANT(aclrtSynchronizeStreamWithTimeout(stream, 1500), 507046);
        async_error(HCCL_SUCCESS);
        OK(aclrtStreamAbort(stream));
    } else {
        timed_out("not there: rank 1.");
        /* The communicator is over until it is resumed. */
        OK(gather());
        WANT(synchronize(), 507048);
    }
    meet(1);
    OK(HcclCommSuspend(comm));
    WANT(gather(), HCCL_E_SUSPENDING);
    OK(HcclCommResume(comm));
    OK(reduce());
    OK(synchronize());
}

/* Other ways to end a hung operator: the stream goes by force, or all tasks of the device do. */
static void hang_otherwise(int by_force) {
    OK(gather());
    if (rank == 1) {
        WANT(aclrtSynchronizeStreamWithTimeout(stream, 300), 507046);
        if (by_force) {
            OK(aclrtDestroyStreamForce(stream));
        } else {
            OK(aclrtDeviceTaskAbort(rank, 5000));
            OK(aclrtDestroyStream(stream));
        }
        OK(aclrtCreateStream(&stream));
        /* The communicator was left in the middle of an operator. */
        OK(gather());
        WANT(synchronize(), 107023);
        TEXT("EI0006", "resume or destroy it");
    } else {
        timed_out("not there: rank 1.");
    }
}

static void run(const char *scenario) {
    if (is(scenario, "hang")) hang();
    if (is(scenario, "hang_force")) hang_otherwise(1);
    if (is(scenario, "hang_device")) hang_otherwise(0);
    if (is(scenario, "slow")) {
        OK(gather());
        OK(synchronize());
    }
    if (is(scenario, "async_error")) {
        OK(reduce());
        if (rank == 0) {
            WANT(synchronize(), 507057);
            TEXT("EI0013", "error CQE");
            async_error(HCCL_E_REMOTE);
        } else {
            timed_out("not there: rank 0.");
        }
    }
    if (is(scenario, "link_down")) {
        OK(reduce());
        OK(synchronize());
        OK(reduce());
        if (rank < 2) {
            WANT(synchronize(), 507057);
            TEXT("EI0013", rank == 0 ? "towards rank 1" : "towards rank 0");
            async_error(HCCL_E_REMOTE);
        } else {
            timed_out("rank 0");
        }
    }
    if (is(scenario, "oom")) {
        if (rank == 1) {
            void *memory;
            WANT(aclrtMalloc(&memory, 64 << 20, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
            WANT(reduce(), HCCL_E_OOM);
            TEXT("EI0011", "twice 200 MB");
        } else {
            OK(reduce());
            timed_out("not there: rank 1.");
        }
    }
    if (is(scenario, "device_lost")) {
        OK(reduce());
        if (rank == 1) {
            WANT(synchronize(), 507010);
            void *memory;
            WANT(aclrtMalloc(&memory, 100, ACL_MEM_MALLOC_HUGE_FIRST) != 0, 1);
        } else {
            timed_out("not there: rank 1.");
        }
    }
    if (is(scenario, "mismatch")) {
        OK(HcclAllReduce(in, out, COUNT + (rank == 1), HCCL_DATA_TYPE_INT8, HCCL_REDUCE_SUM, comm, stream));
        WANT(synchronize(), 507000);
        TEXT("EI0005", "count differs between ranks", "all_reduce(i8[1000]", "rank 1 has all_reduce(i8[1001]");
    }
    if (is(scenario, "dead")) {
        OK(reduce());
        OK(synchronize());
        if (rank == 1) {
            printf("rank 1 passed\n");
            fflush(stdout);
            _exit(0);
        }
        OK(reduce());
        WANT(synchronize(), 507057);
        TEXT("EI0006", "rank 1");
    }
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    rank = my_rank = atoi(argv[1]);
    ranks = atoi(argv[2]);
    const char *scenario = argv[4];
    marks = argv[5];
    OK(aclInit(NULL));
    OK(aclrtSetDevice(rank));
    OK(aclrtCreateStream(&stream));
    HcclRootInfo info;
    if (rank == 0) OK(HcclGetRootInfo(&info));
    share(argv[3], rank, &info);
    int made = HcclCommInitRootInfo((uint32_t)ranks, &info, (uint32_t)rank, &comm);
    if (is(scenario, "init_timeout")) {
        WANT(made, HCCL_E_TIMEOUT);
        TEXT("EI0015", rank == 1 ? "rank 1 reached nobody" : "not connected: [1]");
        printf("rank %d passed\n", rank);
        return 0;
    }
    OK(made);
    in = on_device(COUNT * 4 * 4);
    out = on_device((size_t)COUNT * 4 * (size_t)ranks * 4);
    OK(aclrtMemset(in, COUNT * 16, 0, COUNT * 16));
    run(scenario);
    if (!is(scenario, "dead")) meet(2);
    if (!is(scenario, "device_lost") || rank != 1) {
        OK(HcclCommDestroy(comm));
        OK(aclrtDestroyStreamForce(stream));
    }
    printf("rank %d passed\n", rank);
    return 0;
}
