/* Sends and receives meet: messages RANK RANKS ROOT-INFO-FILE [first]; two ranks, or more that only
   send round a ring. With `first` all ranks send before they receive, and must find out. */
#include "common.h"

enum { MANY = 1500, LONG = 1 << 20 };

static HcclComm comm;
static aclrtStream stream;
static uint32_t other;
static int32_t *out_device, *in_device, *host;

static int send_one(long count) {
    return HcclSend(out_device, (uint64_t)count, HCCL_DATA_TYPE_INT32, other, comm, stream);
}
static int recv_one(long count) {
    return HcclRecv(in_device, (uint64_t)count, HCCL_DATA_TYPE_INT32, other, comm, stream);
}
static void arrived(long count, int seed) {
    OK(aclrtSynchronizeStream(stream));
    to_host(host, in_device, (size_t)count * 4);
    for (long i = 0; i < count; i++) WANT(host[i], seed * 1000 + i);
    OK(aclrtMemset(in_device, (size_t)LONG * 4, 0xff, (size_t)LONG * 4));
}
static void both(long count) {
    HcclSendRecvItem items[] = {
        {HCCL_RECV, in_device, (uint64_t)count, HCCL_DATA_TYPE_INT32, other},
        {HCCL_SEND, out_device, (uint64_t)count, HCCL_DATA_TYPE_INT32, other},
    };
    OK(HcclBatchSendRecv(items, 2, comm, stream));
}

/* A batch on one side fits calls one by one on the other, of any length. */
static void batch_against_calls(long count, int seed) {
    for (int turn = 0; turn < 4; turn++) {
        if (my_rank == turn % 2) {
            both(count);
        } else if (turn < 2) {
            OK(send_one(count));
            OK(recv_one(count));
        } else {
            OK(recv_one(count));
            OK(send_one(count));
        }
        arrived(count, seed);
    }
}

/* More items than a link holds receipts. */
static void many(int seed) {
    static HcclSendRecvItem items[2 * MANY];
    for (int i = 0; i < MANY; i++) {
        items[i] = (HcclSendRecvItem){HCCL_RECV, in_device + i, 1, HCCL_DATA_TYPE_INT32, other};
        items[MANY + i] = (HcclSendRecvItem){HCCL_SEND, out_device + i, 1, HCCL_DATA_TYPE_INT32, other};
    }
    OK(HcclBatchSendRecv(items, 2 * MANY, comm, stream));
    arrived(MANY, seed);
}

/* The first messages of all: nothing is there yet between the ranks. */
static void ring(uint32_t ranks) {
    uint32_t before = ((uint32_t)my_rank + ranks - 1) % ranks;
    HcclSendRecvItem items[] = {
        {HCCL_SEND, out_device, 16, HCCL_DATA_TYPE_INT32, ((uint32_t)my_rank + 1) % ranks},
        {HCCL_RECV, in_device, 16, HCCL_DATA_TYPE_INT32, before},
    };
    for (int turn = 0; turn < 3; turn++) {
        OK(HcclBatchSendRecv(items, 2, comm, stream));
        arrived(16, (int)before);
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    my_rank = atoi(argv[1]);
    other = (uint32_t)my_rank ^ 1;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(my_rank));
    HcclRootInfo info;
    if (my_rank == 0) OK(HcclGetRootInfo(&info));
    share(argv[3], my_rank, &info);
    OK(HcclCommInitRootInfo((uint32_t)atoi(argv[2]), &info, (uint32_t)my_rank, &comm));
    OK(aclrtCreateStream(&stream));
    host = malloc((size_t)LONG * 4);
    out_device = on_device((size_t)LONG * 4);
    in_device = on_device((size_t)LONG * 4);
    for (int i = 0; i < LONG; i++) host[i] = my_rank * 1000 + i;
    to_device(out_device, host, (size_t)LONG * 4);
    if (argc > 4) {
        OK(send_one(1));
        OK(recv_one(1));
        WANT(aclrtSynchronizeStream(stream), 507048);
        TEXT("EI0002", "emulated", "HcclSend", "not there: rank ");
    } else if (atoi(argv[2]) > 2) {
        ring((uint32_t)atoi(argv[2]));
    } else {
        batch_against_calls(1, (int)other);
        batch_against_calls(LONG, (int)other);
        many((int)other);
        batch_against_calls(100, (int)other);
    }
    OK(HcclCommDestroy(comm));
    OK(aclFinalize());
    printf("rank %d passed\n", my_rank);
    return 0;
}
