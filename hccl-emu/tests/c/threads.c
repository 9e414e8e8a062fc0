/* Several devices of one process, a thread for each: threads RANKS all|root|table|group FILE */
#include <pthread.h>

#include "collectives.h"

static int ranks;
static const char *way, *file;
static HcclComm comms[64];
static HcclRootInfo info;
static pthread_barrier_t gate;

static void *work(void *number) {
    Member m = {NULL, NULL, (int)(long)number, ranks};
    OK(aclrtSetDevice(m.rank));
    if (strcmp(way, "root") == 0) {
        if (m.rank == 0) OK(HcclGetRootInfo(&info));
        pthread_barrier_wait(&gate);
        OK(HcclCommInitRootInfo((uint32_t)ranks, &info, (uint32_t)m.rank, &comms[m.rank]));
    }
    if (strcmp(way, "table") == 0) {
        OK(HcclCommInitClusterInfo(file, (uint32_t)m.rank, &comms[m.rank]));
        HcclComm again;
        WANT(HcclCommInitClusterInfo(file, (uint32_t)m.rank, &again), HCCL_E_UNAVAIL);
        char name[128];
        OK(HcclGetCommName(comms[m.rank], name));
        WANT(strcmp(name, "hccl_world_group"), 0);
    }
    m.comm = comms[m.rank];
    OK(aclrtCreateStream(&m.stream));
    everything(&m, 17);
    all_reduce(&m, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, 200003);
    OK(HcclCommDestroy(m.comm));
    OK(aclrtDestroyStream(m.stream));
    OK(aclrtResetDevice(m.rank));
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    ranks = atoi(argv[1]);
    way = argv[2];
    file = argv[3];
    OK(aclInit(NULL));
    pthread_barrier_init(&gate, NULL, (unsigned)ranks);
    if (strcmp(way, "all") == 0) {
        int32_t devices[64];
        for (int i = 0; i < ranks; i++) devices[i] = i;
        OK(aclrtSetDevice(0));
        OK(HcclCommInitAll((uint32_t)ranks, devices, comms));
    }
#ifdef NEW_CANN
    if (strcmp(way, "group") == 0) {
        /* One thread makes all communicators: they come into being at the end of the group. */
        OK(aclrtSetDevice(0));
        OK(HcclGetRootInfo(&info));
        OK(HcclGroupStart());
        for (int i = 0; i < ranks; i++) {
            OK(aclrtSetDevice(i));
            OK(HcclCommInitRootInfo((uint32_t)ranks, &info, (uint32_t)i, &comms[i]));
            WANT(comms[i] == NULL, 1);
        }
        OK(HcclGroupEnd());
        WANT(comms[0] != NULL, 1);
    }
#endif
    pthread_t threads[64];
    for (long i = 0; i < ranks; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < ranks; i++) pthread_join(threads[i], NULL);
    OK(aclFinalize());
    printf("threads passed\n");
    return 0;
}
