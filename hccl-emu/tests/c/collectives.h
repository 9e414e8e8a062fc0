/* Every operator with every element type and reduction, checked element by element. */
#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include "common.h"

typedef struct {
    HcclComm comm;
    aclrtStream stream;
    int rank, ranks;
} Member;

typedef struct {
    void *host_in, *host_out, *want, *in, *out;
    size_t in_bytes, out_bytes;
    int type;
} Buffers;

static Buffers make(int type, long in_count, long out_count) {
    Buffers b;
    b.type = type;
    b.in_bytes = (size_t)in_count * bytes_of(type);
    b.out_bytes = (size_t)out_count * bytes_of(type);
    b.host_in = calloc(1, b.in_bytes + 1);
    b.host_out = calloc(1, b.out_bytes + 1);
    b.want = calloc(1, b.out_bytes + 1);
    b.in = on_device(b.in_bytes);
    b.out = on_device(b.out_bytes);
    return b;
}

static void *in_at(Buffers *b, long i) { return (char *)b->host_in + (size_t)i * bytes_of(b->type); }
static void *want_at(Buffers *b, long i) { return (char *)b->want + (size_t)i * bytes_of(b->type); }

static void compare(Member *m, Buffers *b, const char *what, const void *device) {
    OK(aclrtSynchronizeStream(m->stream));
    to_host(b->host_out, device, b->out_bytes);
    same(__LINE__, what, b->host_out, b->want, b->out_bytes, b->type);
}

static void drop(Buffers *b) {
    OK(aclrtFree(b->in));
    OK(aclrtFree(b->out));
    free(b->host_in);
    free(b->host_out);
    free(b->want);
}

static long reduced(int op, int ranks, long place) {
    long sum = 0, prod = 1, max = 0, min = 100;
    for (int r = 0; r < ranks; r++) {
        long v = value_of(r, place);
        sum += v;
        prod *= factor_of(r, place);
        max = v > max ? v : max;
        min = v < min ? v : min;
    }
    return op == HCCL_REDUCE_SUM ? sum : op == HCCL_REDUCE_PROD ? prod : op == HCCL_REDUCE_MAX ? max : min;
}

static long given(int op, int rank, long place) {
    return op == HCCL_REDUCE_PROD ? factor_of(rank, place) : value_of(rank, place);
}

static void all_reduce(Member *m, int type, int op, long count) {
    Buffers b = make(type, count, count);
    for (long i = 0; i < count; i++) {
        put(in_at(&b, i), type, given(op, m->rank, i));
        put(want_at(&b, i), type, reduced(op, m->ranks, i));
    }
    to_device(b.in, b.host_in, b.in_bytes);
    OK(HcclAllReduce(b.in, b.out, count, type, op, m->comm, m->stream));
    compare(m, &b, "all_reduce", b.out);
    OK(HcclAllReduce(b.in, b.in, count, type, op, m->comm, m->stream));
    compare(m, &b, "all_reduce in place", b.in);
    drop(&b);
}

static void reduce(Member *m, int type, int op, long count, int root) {
    Buffers b = make(type, count, count);
    for (long i = 0; i < count; i++) {
        put(in_at(&b, i), type, given(op, m->rank, i));
        put(want_at(&b, i), type, reduced(op, m->ranks, i));
    }
    to_device(b.in, b.host_in, b.in_bytes);
    OK(HcclReduce(b.in, b.out, count, type, op, root, m->comm, m->stream));
    if (m->rank == root) compare(m, &b, "reduce", b.out);
    OK(aclrtSynchronizeStream(m->stream));
    drop(&b);
}

static void reduce_scatter(Member *m, int type, int op, long count) {
    Buffers b = make(type, count * m->ranks, count);
    for (long i = 0; i < count * m->ranks; i++) put(in_at(&b, i), type, given(op, m->rank, i));
    for (long i = 0; i < count; i++) put(want_at(&b, i), type, reduced(op, m->ranks, m->rank * count + i));
    to_device(b.in, b.host_in, b.in_bytes);
    OK(HcclReduceScatter(b.in, b.out, count, type, op, m->comm, m->stream));
    compare(m, &b, "reduce_scatter", b.out);
    drop(&b);
}

/* Rank r has r + 1 blocks of `unit`; the blocks lie with gaps of one unit, the last rank's first. */
static long uneven(long unit, int rank) { return unit * (rank + 1); }
static long place(long unit, int rank, int ranks) {
    long at = 0;
    for (int r = ranks - 1; r > rank; r--) at += uneven(unit, r) + unit;
    return at;
}

static void reduce_scatter_v(Member *m, int type, int op, long unit) {
    uint64_t counts[64], displs[64];
    long total = place(unit, -1, m->ranks), mine = uneven(unit, m->rank);
    for (int r = 0; r < m->ranks; r++) counts[r] = uneven(unit, r), displs[r] = place(unit, r, m->ranks);
    Buffers b = make(type, total, mine);
    for (long i = 0; i < total; i++) put(in_at(&b, i), type, given(op, m->rank, i));
    for (long i = 0; i < mine; i++) put(want_at(&b, i), type, reduced(op, m->ranks, displs[m->rank] + i));
    to_device(b.in, b.host_in, b.in_bytes);
    OK(HcclReduceScatterV(b.in, counts, displs, b.out, mine, type, op, m->comm, m->stream));
    compare(m, &b, "reduce_scatter_v", b.out);
    drop(&b);
}

static void broadcast(Member *m, int type, long count, int root) {
    Buffers b = make(type, count, count);
    for (long i = 0; i < count; i++) {
        put(in_at(&b, i), type, value_of(m->rank, i));
        put(want_at(&b, i), type, value_of(root, i));
    }
    to_device(b.in, b.host_in, b.in_bytes);
    OK(HcclBroadcast(b.in, count, type, root, m->comm, m->stream));
    compare(m, &b, "broadcast", b.in);
    drop(&b);
}

static void all_gather(Member *m, int type, long count) {
    Buffers b = make(type, count, count * m->ranks);
    for (long i = 0; i < count; i++) put(in_at(&b, i), type, value_of(m->rank, i));
    for (long i = 0; i < count * m->ranks; i++) put(want_at(&b, i), type, value_of(i / count, i % count));
    to_device(b.in, b.host_in, b.in_bytes);
    OK(HcclAllGather(b.in, b.out, count, type, m->comm, m->stream));
    compare(m, &b, "all_gather", b.out);
    char *own = (char *)b.out + (size_t)m->rank * b.in_bytes;
    OK(aclrtMemset(b.out, b.out_bytes, 0, b.out_bytes));
    OK(aclrtMemcpy(own, b.in_bytes, b.in, b.in_bytes, ACL_MEMCPY_DEVICE_TO_DEVICE));
    OK(HcclAllGather(own, b.out, count, type, m->comm, m->stream));
    compare(m, &b, "all_gather in place", b.out);
    drop(&b);
}

static void all_gather_v(Member *m, int type, long unit) {
    uint64_t counts[64], displs[64];
    long total = place(unit, -1, m->ranks), mine = uneven(unit, m->rank);
    for (int r = 0; r < m->ranks; r++) counts[r] = uneven(unit, r), displs[r] = place(unit, r, m->ranks);
    Buffers b = make(type, mine, total);
    for (long i = 0; i < mine; i++) put(in_at(&b, i), type, value_of(m->rank, i));
    for (int r = 0; r < m->ranks; r++)
        for (long i = 0; i < uneven(unit, r); i++) put(want_at(&b, displs[r] + i), type, value_of(r, i));
    to_device(b.in, b.host_in, b.in_bytes);
    OK(aclrtMemset(b.out, b.out_bytes, 0, b.out_bytes));
    OK(HcclAllGatherV(b.in, mine, b.out, counts, displs, type, m->comm, m->stream));
    compare(m, &b, "all_gather_v", b.out);
    drop(&b);
}

static void scatter(Member *m, int type, long count, int root) {
    Buffers b = make(type, count * m->ranks, count);
    for (long i = 0; i < count * m->ranks; i++) put(in_at(&b, i), type, value_of(m->rank, i));
    for (long i = 0; i < count; i++) put(want_at(&b, i), type, value_of(root, m->rank * count + i));
    to_device(b.in, b.host_in, b.in_bytes);
    void *in = m->rank == root ? b.in : NULL;
    OK(HcclScatter(in, b.out, count, type, root, m->comm, m->stream));
    compare(m, &b, "scatter", b.out);
    drop(&b);
}

/* What rank r sends to rank p at place i. */
static long cell(int r, int p, long i) { return (r * 5 + p * 3 + i) % 100 + 1; }

static void all_to_all(Member *m, int type, long count) {
    Buffers b = make(type, count * m->ranks, count * m->ranks);
    for (int p = 0; p < m->ranks; p++)
        for (long i = 0; i < count; i++) {
            put(in_at(&b, p * count + i), type, cell(m->rank, p, i));
            put(want_at(&b, p * count + i), type, cell(p, m->rank, i));
        }
    to_device(b.in, b.host_in, b.in_bytes);
    OK(HcclAlltoAll(b.in, count, type, b.out, count, type, m->comm, m->stream));
    compare(m, &b, "all_to_all", b.out);
    drop(&b);
}

/* Elements from rank r to rank p: none for some pairs. */
static long share_of(long unit, int r, int p) { return (r + p) % 3 * unit; }

static void all_to_all_v(Member *m, int type, long unit, int packed) {
    uint64_t sends[64], recvs[64], sdispls[64], rdispls[64], matrix[64 * 64];
    long gap = packed ? 0 : unit, in = 0, out = 0;
    for (int p = 0; p < m->ranks; p++) {
        sends[p] = share_of(unit, m->rank, p), sdispls[p] = in, in += sends[p] + gap;
        recvs[p] = share_of(unit, p, m->rank), rdispls[p] = out, out += recvs[p] + gap;
        for (int q = 0; q < m->ranks; q++) matrix[p * m->ranks + q] = share_of(unit, p, q);
    }
    Buffers b = make(type, in, out);
    for (int p = 0; p < m->ranks; p++) {
        for (uint64_t i = 0; i < sends[p]; i++) put(in_at(&b, sdispls[p] + i), type, cell(m->rank, p, i));
        for (uint64_t i = 0; i < recvs[p]; i++) put(want_at(&b, rdispls[p] + i), type, cell(p, m->rank, i));
    }
    if (b.in_bytes) to_device(b.in, b.host_in, b.in_bytes);
    OK(aclrtMemset(b.out, b.out_bytes ? b.out_bytes : 1, 0, b.out_bytes ? b.out_bytes : 1));
    OK(HcclAlltoAllV(b.in, sends, sdispls, type, b.out, recvs, rdispls, type, m->comm, m->stream));
    if (b.out_bytes) compare(m, &b, "all_to_all_v", b.out);
#ifdef NEW_CANN
    if (packed) {
        OK(aclrtMemset(b.out, b.out_bytes ? b.out_bytes : 1, 0, b.out_bytes ? b.out_bytes : 1));
        OK(HcclAlltoAllVC(b.in, matrix, type, b.out, type, m->comm, m->stream));
        if (b.out_bytes) compare(m, &b, "all_to_all_vc", b.out);
    }
#else
    (void)matrix;
#endif
    OK(aclrtSynchronizeStream(m->stream));
    drop(&b);
}

static void messages(Member *m, int type, long count) {
    if (m->ranks < 2) return;
    int next = (m->rank + 1) % m->ranks, before = (m->rank + m->ranks - 1) % m->ranks;
    Buffers b = make(type, count, count);
    for (long i = 0; i < count; i++) {
        put(in_at(&b, i), type, value_of(m->rank, i));
        put(want_at(&b, i), type, value_of(before, i));
    }
    to_device(b.in, b.host_in, b.in_bytes);
    /* Round the ring, rank 0 first. */
    if (m->rank == 0) {
        OK(HcclSend(b.in, count, type, next, m->comm, m->stream));
        OK(HcclRecv(b.out, count, type, before, m->comm, m->stream));
    } else {
        OK(HcclRecv(b.out, count, type, before, m->comm, m->stream));
        OK(HcclSend(b.in, count, type, next, m->comm, m->stream));
    }
    compare(m, &b, "send and recv", b.out);
    OK(aclrtMemset(b.out, b.out_bytes, 0, b.out_bytes));
    HcclSendRecvItem items[] = {
        {HCCL_SEND, b.in, (uint64_t)count, type, (uint32_t)next},
        {HCCL_SEND, NULL, (uint64_t)count, type, (uint32_t)next},
        {HCCL_RECV, b.out, (uint64_t)count, type, (uint32_t)before},
    };
    OK(HcclBatchSendRecv(items, 3, m->comm, m->stream));
    compare(m, &b, "batch_send_recv", b.out);
    drop(&b);
}

static const int REDUCIBLE[] = {HCCL_DATA_TYPE_INT8, HCCL_DATA_TYPE_INT16, HCCL_DATA_TYPE_INT32, HCCL_DATA_TYPE_INT64,
                                HCCL_DATA_TYPE_FP16, HCCL_DATA_TYPE_FP32, HCCL_DATA_TYPE_BFP16};

/* All operators with all types that Atlas A2 takes. */
static void everything(Member *m, long count) {
    for (unsigned t = 0; t < sizeof REDUCIBLE / sizeof *REDUCIBLE; t++) {
        int type = REDUCIBLE[t];
        for (int op = HCCL_REDUCE_SUM; op <= HCCL_REDUCE_MIN; op++) {
            if (op == HCCL_REDUCE_PROD && (type == HCCL_DATA_TYPE_INT16 || type == HCCL_DATA_TYPE_BFP16)) continue;
            all_reduce(m, type, op, count);
            reduce(m, type, op, count, (t + op) % m->ranks);
            reduce_scatter(m, type, op, count);
            if (op != HCCL_REDUCE_PROD && type != HCCL_DATA_TYPE_INT64) reduce_scatter_v(m, type, op, count);
        }
    }
    for (int type = 0; type <= HCCL_DATA_TYPE_INT128; type++) {
        broadcast(m, type, count, type % m->ranks);
        all_gather(m, type, count);
        all_gather_v(m, type, count);
        scatter(m, type, count, type % m->ranks);
        all_to_all(m, type, count);
        all_to_all_v(m, type, count, 0);
        all_to_all_v(m, type, count, 1);
        messages(m, type, count);
    }
    OK(HcclBarrier(m->comm, m->stream));
    OK(aclrtSynchronizeStream(m->stream));
}

/* bf16 subnormals are kept: the smallest ones add up exactly. */
static void subnormals(Member *m) {
    uint16_t in[5] = {2, 2, 2, 2, 2}, out[5];
    void *device = on_device(sizeof in);
    to_device(device, in, sizeof in);
    OK(HcclAllReduce(device, device, 5, HCCL_DATA_TYPE_BFP16, HCCL_REDUCE_SUM, m->comm, m->stream));
    OK(aclrtSynchronizeStream(m->stream));
    to_host(out, device, sizeof out);
    for (int i = 0; i < 5; i++) WANT(out[i], 2 * m->ranks);
    OK(aclrtFree(device));
}

#endif
