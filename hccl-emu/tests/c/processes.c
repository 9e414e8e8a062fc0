/* One rank of several processes: processes RANK RANKS ROOT-INFO-FILE [RANK-TABLE] */
#include "collectives.h"

/* Work on one stream feeds another by an event; results must be those of the whole chain. */
static void streams(Member *m) {
    enum { COUNT = 50000 };
    Member second = *m;
    OK(aclrtCreateStream(&second.stream));
    aclrtEvent ready, done;
    OK(aclrtCreateEvent(&ready));
    OK(aclrtCreateEvent(&done));
    int32_t *host = malloc(COUNT * 4);
    for (int i = 0; i < COUNT; i++) host[i] = m->rank + i % 7;
    void *a = on_device(COUNT * 4), *b = on_device(COUNT * 4);
    to_device(a, host, COUNT * 4);
    for (int round = 0; round < 4; round++) {
        OK(HcclAllReduce(a, b, COUNT, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, m->comm, m->stream));
        OK(aclrtRecordEvent(ready, m->stream));
        OK(aclrtStreamWaitEvent(second.stream, ready));
        OK(HcclAllReduce(b, a, COUNT, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_MAX, m->comm, second.stream));
        OK(aclrtRecordEvent(done, second.stream));
        OK(aclrtStreamWaitEvent(m->stream, done));
    }
    OK(aclrtSynchronizeStream(m->stream));
    OK(aclrtSynchronizeEvent(done));
    to_host(host, a, COUNT * 4);
    for (int i = 0; i < COUNT; i++) {
        long want = i % 7 * m->ranks + m->ranks * (m->ranks - 1) / 2;
        for (int round = 1; round < 4; round++) want *= m->ranks;
        WANT(host[i], want);
    }
    OK(aclrtDestroyEvent(ready));
    OK(aclrtDestroyEvent(done));
    OK(aclrtDestroyStream(second.stream));
    OK(aclrtFree(a));
    OK(aclrtFree(b));
    free(host);
}

/* Sub-communicators: the even ranks in falling order, and the others not at all. */
static void sub_communicators(Member *m) {
    char name[128], parent[128];
    OK(HcclGetCommName(m->comm, parent));
    uint32_t ids[64], count = 0;
    for (int r = m->ranks - 1; r >= 0; r--)
        if (r % 2 == 0) ids[count++] = (uint32_t)r;
    HcclCommConfig config;
    HcclCommConfigInit(&config);
    HcclComm sub = NULL;
    if (m->rank % 2) {
        OK(HcclCreateSubCommConfig(&m->comm, count, NULL, 0xFFFFFFFF, 0, &config, &sub));
        WANT(sub == NULL, 1);
        return;
    }
    uint32_t mine = 0;
    while (ids[mine] != (uint32_t)m->rank) mine++;
    WANT(HcclCreateSubCommConfig(&m->comm, count, NULL, 7, mine, &config, &sub), HCCL_E_PARA);
    WANT(HcclCreateSubCommConfig(&m->comm, count, ids, 0xFFFFFFFF, mine, &config, &sub), HCCL_E_PARA);
    OK(HcclCreateSubCommConfig(&m->comm, count, ids, 7, mine, &config, &sub));
    OK(HcclGetCommName(sub, name));
    snprintf(parent + strlen(parent), sizeof parent - strlen(parent), "_sub_7");
    WANT(strcmp(name, parent), 0);
    Member even = {sub, m->stream, (int)mine, (int)count};
    all_gather(&even, HCCL_DATA_TYPE_INT32, 1000);
    all_reduce(&even, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, 4097);
    HcclComm again = NULL;
    WANT(HcclCreateSubCommConfig(&sub, count, ids, 8, mine, &config, &again), HCCL_E_NOT_SUPPORT);
    WANT(HcclCreateSubCommConfig(&m->comm, count, ids, 7, mine, &config, &again), HCCL_E_PARA);
    OK(HcclCommDestroy(sub));
}

#ifdef NEW_CANN
static void groups(Member *m) {
    WANT(HcclGroupEnd(), HCCL_E_NOT_SUPPORT);
    if (m->ranks < 2) return;
    int next = (m->rank + 1) % m->ranks, before = (m->rank + m->ranks - 1) % m->ranks;
    int32_t in[10], out[10];
    for (int i = 0; i < 10; i++) in[i] = m->rank * 10 + i, out[i] = -1;
    void *a = on_device(sizeof in), *b = on_device(sizeof in);
    to_device(a, in, sizeof in);
    OK(HcclGroupStart());
    OK(HcclSend(a, 10, HCCL_DATA_TYPE_INT32, next, m->comm, m->stream));
    OK(HcclGroupStart());
    OK(HcclRecv(b, 10, HCCL_DATA_TYPE_INT32, before, m->comm, m->stream));
    OK(HcclGroupEnd());
    WANT(HcclAllReduce(a, b, 10, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, m->comm, m->stream), HCCL_E_NOT_SUPPORT);
    OK(HcclGroupEnd());
    /* The end has waited: nothing is left to synchronise. */
    to_host(out, b, sizeof out);
    for (int i = 0; i < 10; i++) WANT(out[i], before * 10 + i);
    OK(HcclGroupStart());
    OK(HcclAllReduce(a, a, 5, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, m->comm, m->stream));
    OK(HcclBroadcast(b, 10, HCCL_DATA_TYPE_INT32, 0, m->comm, m->stream));
    OK(HcclGroupEnd());
    to_host(out, a, sizeof out);
    for (int i = 0; i < 5; i++) WANT(out[i], m->ranks * (m->ranks - 1) * 5 + i * m->ranks);
    OK(aclrtFree(a));
    OK(aclrtFree(b));
}
#endif

static void questions(Member *m) {
    uint32_t number = 99;
    OK(HcclGetRankSize(m->comm, &number));
    WANT(number, m->ranks);
    OK(HcclGetRankId(m->comm, &number));
    WANT(number, m->rank);
    HcclResult error = 99;
    OK(HcclGetCommAsyncError(m->comm, &error));
    WANT(error, HCCL_SUCCESS);
    WANT(strcmp(HcclGetErrorString(5), "not support feature"), 0);
    WANT(strcmp(HcclGetErrorString(1041), "unknown err"), 0);
    WANT(strcmp(HcclGetErrorString(-1), "unknown error"), 0);
    WANT(HcclGetCommConfigCapability() >= 5, 1);
}

/* Several communicators at once, each made over the one before, and all of them alive. */
static void many(Member *m) {
    enum { COMMS = 6 };
    HcclComm comms[COMMS];
    void *device = on_device(HCCL_ROOT_INFO_BYTES);
    for (int i = 0; i < COMMS; i++) {
        HcclRootInfo info;
        if (m->rank == 0) {
            OK(HcclGetRootInfo(&info));
            to_device(device, &info, sizeof info);
        }
        OK(HcclBroadcast(device, HCCL_ROOT_INFO_BYTES, HCCL_DATA_TYPE_UINT8, 0, m->comm, m->stream));
        OK(aclrtSynchronizeStream(m->stream));
        to_host(&info, device, sizeof info);
        OK(HcclCommInitRootInfo((uint32_t)m->ranks, &info, (uint32_t)m->rank, &comms[i]));
    }
    for (int i = COMMS - 1; i >= 0; i--) {
        Member other = {comms[i], m->stream, m->rank, m->ranks};
        all_reduce(&other, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, 100 + i);
        OK(HcclCommDestroy(comms[i]));
    }
    OK(aclrtFree(device));
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) return 2;
    Member m = {NULL, NULL, atoi(argv[1]), atoi(argv[2])};
    my_rank = m.rank;
    uint32_t devices = 0;
    OK(aclrtGetDeviceCount(&devices));
    OK(aclInit(NULL));
    OK(aclrtSetDevice(m.rank % (int)devices));
    if (argc == 5) {
        OK(HcclCommInitClusterInfo(argv[4], (uint32_t)m.rank, &m.comm));
    } else {
        HcclRootInfo info;
        if (m.rank == 0) OK(HcclGetRootInfo(&info));
        share(argv[3], m.rank, &info);
        OK(HcclCommInitRootInfo((uint32_t)m.ranks, &info, (uint32_t)m.rank, &m.comm));
    }
    OK(aclrtCreateStream(&m.stream));
    questions(&m);
    if (m.ranks <= 3) many(&m);
    everything(&m, 1);
    everything(&m, 1003);
    all_reduce(&m, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, 700001);
    all_gather(&m, HCCL_DATA_TYPE_BFP16, 300007);
    all_to_all(&m, HCCL_DATA_TYPE_INT64, 40009);
    reduce_scatter(&m, HCCL_DATA_TYPE_FP16, HCCL_REDUCE_MAX, 100003);
    subnormals(&m);
    streams(&m);
    sub_communicators(&m);
#ifdef NEW_CANN
    groups(&m);
#endif
    OK(HcclBarrier(m.comm, m.stream));
    OK(aclrtSynchronizeStream(m.stream));
    OK(HcclCommDestroy(m.comm));
    OK(aclrtDestroyStream(m.stream));
    OK(aclrtResetDevice(m.rank % (int)devices));
    OK(aclFinalize());
    printf("rank %d passed\n", m.rank);
    return 0;
}
