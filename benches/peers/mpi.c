/* One MPI library, measured as `muster bench` measures itself (docs/metrics.md): a barrier before
 * each sample, as many calls in a sample as take 5 us, the slowest rank of each sample counts, and
 * results are checked.
 *
 * usage: mpirun -n N mpi-bench MILLISECONDS CELL...      CELL = collective:bytes
 * Prints on rank 0, for each cell: collective,bytes,median_us,min_us,wrong
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLES_MAX 20000
#define SAMPLES_MIN 8
#define SAMPLE_NS 5000.0

enum what { ALL_GATHER, ALL_GATHER_OBJECT, ALL_REDUCE, ALL_REDUCE_BF16, ALL_TO_ALL, ALL_TO_ALL_V, BARRIER, BROADCAST, BROADCAST_OBJECT, GROUP_CREATE, REDUCE_SCATTER, NONE };
static const char *const names[] = {"all_gather", "all_gather_object", "all_reduce", "all_reduce_bf16", "all_to_all", "all_to_all_v", "barrier", "broadcast", "broadcast_object", "group_create", "reduce_scatter"};

struct cell {
    enum what what;
    int n, me, count;
    size_t sends, recvs;
    float *send, *recv;
    int *send_counts, *send_displs, *recv_counts, *recv_displs;
};

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The uneven blocks of `muster bench --split uneven`. */
static int weight(int from, int to) {
    static const int weights[] = {2, 1, 0, 1};
    return weights[(from + 3 * to) % 4];
}

static int pair(const struct cell *c, int from, int to) {
    int busiest = 1;
    for (int me = 0; me < c->n; me++) {
        int sends = 0, recvs = 0;
        for (int peer = 0; peer < c->n; peer++) {
            sends += weight(me, peer);
            recvs += weight(peer, me);
        }
        if (sends > busiest) busiest = sends;
        if (recvs > busiest) busiest = recvs;
    }
    long long part = (long long)c->count * weight(from, to) / busiest;
    return part > 0 || weight(from, to) == 0 || c->count == 0 ? (int)part : 1;
}

/* What element `at` of the block that `from` has for `to` is. Small whole numbers: sums are exact. */
static float value(int from, int to, size_t at) { return (float)((at * 7 + (size_t)from * 3 + (size_t)to * 5) % 101); }

/* The same for bf16, whose sums of up to 8 such numbers are exact, too: the upper half of a float's bits. */
static unsigned short small(int from, size_t at) {
    float number = (float)((at + (size_t)from) % 8);
    unsigned bits;
    memcpy(&bits, &number, sizeof bits);
    return (unsigned short)(bits >> 16);
}

static float widened(unsigned short half) {
    unsigned bits = (unsigned)half << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Whether this library has such calls, and their element type. */
static int has(enum what what) {
    if (what == ALL_GATHER_OBJECT || what == BROADCAST_OBJECT) return 0;
#ifdef MPIX_C_BF16
    (void)what;
    return 1;
#else
    return what != ALL_REDUCE_BF16;
#endif
}

/* A group of all ranks, made, used once and destroyed. */
static void group(void) {
    MPI_Comm made;
    MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &made);
    MPI_Barrier(made);
    MPI_Comm_free(&made);
}

static void call(struct cell *c) {
    switch (c->what) {
    case ALL_GATHER: MPI_Allgather(c->send, c->count, MPI_FLOAT, c->recv, c->count, MPI_FLOAT, MPI_COMM_WORLD); break;
    case ALL_REDUCE: MPI_Allreduce(c->send, c->recv, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
#ifdef MPIX_C_BF16
    case ALL_REDUCE_BF16: MPI_Allreduce(c->send, c->recv, c->count, MPIX_C_BF16, MPI_SUM, MPI_COMM_WORLD); break;
#endif
    case ALL_TO_ALL: MPI_Alltoall(c->send, c->count, MPI_FLOAT, c->recv, c->count, MPI_FLOAT, MPI_COMM_WORLD); break;
    case ALL_TO_ALL_V:
        MPI_Alltoallv(c->send, c->send_counts, c->send_displs, MPI_FLOAT, c->recv, c->recv_counts, c->recv_displs, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case BROADCAST: MPI_Bcast(c->recv, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case GROUP_CREATE: group(); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(c->send, c->recv, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    default: MPI_Barrier(MPI_COMM_WORLD); break;
    }
}

static void make(struct cell *c, enum what what, size_t bytes) {
    size_t elements = bytes / (what == ALL_REDUCE_BF16 ? sizeof(short) : sizeof(float)), blocks;
    memset(c, 0, sizeof *c);
    MPI_Comm_size(MPI_COMM_WORLD, &c->n);
    MPI_Comm_rank(MPI_COMM_WORLD, &c->me);
    c->what = what;
    blocks = what == ALL_GATHER || what == ALL_TO_ALL || what == REDUCE_SCATTER ? (size_t)c->n : 1;
    c->count = (int)(elements / blocks);
    if (c->count == 0 && what != BARRIER && what != GROUP_CREATE) c->count = 1;
    c->send_counts = calloc(4 * (size_t)c->n, sizeof(int));
    c->send_displs = c->send_counts + c->n;
    c->recv_counts = c->send_displs + c->n;
    c->recv_displs = c->recv_counts + c->n;
    c->sends = (size_t)c->count * (what == ALL_TO_ALL || what == REDUCE_SCATTER ? (size_t)c->n : 1);
    c->recvs = (size_t)c->count * (what == ALL_TO_ALL || what == ALL_GATHER ? (size_t)c->n : 1);
    if (what == ALL_TO_ALL_V) {
        c->sends = c->recvs = 0;
        for (int peer = 0; peer < c->n; peer++) {
            c->send_counts[peer] = pair(c, c->me, peer);
            c->recv_counts[peer] = pair(c, peer, c->me);
            c->send_displs[peer] = (int)c->sends;
            c->recv_displs[peer] = (int)c->recvs;
            c->sends += (size_t)c->send_counts[peer];
            c->recvs += (size_t)c->recv_counts[peer];
        }
    }
    c->send = malloc((c->sends + 1) * sizeof(float));
    c->recv = malloc((c->recvs + 1) * sizeof(float));
    for (size_t at = 0; at < c->recvs; at++) c->recv[at] = what == BROADCAST && c->me == 0 ? value(0, 0, at) : -1;
    for (size_t at = 0; at < c->sends; at++) c->send[at] = value(c->me, 0, at);
    for (size_t at = 0; at < c->sends && what == ALL_REDUCE_BF16; at++) ((unsigned short *)c->send)[at] = small(c->me, at);
    for (int to = 0; to < c->n && (what == ALL_TO_ALL || what == ALL_TO_ALL_V); to++) {
        size_t first = what == ALL_TO_ALL ? (size_t)(to * c->count) : (size_t)c->send_displs[to];
        size_t length = what == ALL_TO_ALL ? (size_t)c->count : (size_t)c->send_counts[to];
        for (size_t at = 0; at < length; at++) c->send[first + at] = value(c->me, to, at);
    }
}

static long wrong(const struct cell *c) {
    long wrong = 0;
    for (int from = 0; from < c->n && (c->what == ALL_TO_ALL || c->what == ALL_TO_ALL_V || c->what == ALL_GATHER); from++) {
        size_t first = c->what == ALL_TO_ALL_V ? (size_t)c->recv_displs[from] : (size_t)from * (size_t)c->count;
        size_t length = c->what == ALL_TO_ALL_V ? (size_t)c->recv_counts[from] : (size_t)c->count;
        int to = c->what == ALL_GATHER ? 0 : c->me;
        for (size_t at = 0; at < length; at++) wrong += c->recv[first + at] != value(from, to, at);
    }
    for (size_t at = 0; at < c->recvs && (c->what == ALL_REDUCE || c->what == REDUCE_SCATTER); at++) {
        float sum = 0;
        size_t index = c->what == REDUCE_SCATTER ? (size_t)c->me * (size_t)c->count + at : at;
        for (int from = 0; from < c->n; from++) sum += value(from, 0, index);
        wrong += c->recv[at] != sum;
    }
    for (size_t at = 0; at < c->recvs && c->what == ALL_REDUCE_BF16; at++) {
        float sum = 0;
        for (int from = 0; from < c->n; from++) sum += widened(small(from, at));
        wrong += widened(((unsigned short *)c->recv)[at]) != sum;
    }
    for (size_t at = 0; at < c->recvs && c->what == BROADCAST; at++) wrong += c->recv[at] != value(0, 0, at);
    return wrong;
}

/* Time of one call on the slowest rank, with `calls` back to back. */
static double slowest(struct cell *c, int calls) {
    double start = now_ns(), time, most;
    for (int i = 0; i < calls; i++) call(c);
    time = (now_ns() - start) / calls;
    MPI_Allreduce(&time, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static void measure(enum what what, size_t bytes, double budget_ns) {
    static double mine[SAMPLES_MAX], all[SAMPLES_MAX];
    struct cell c;
    double estimate, begun;
    int calls, samples = 0, more = 1;
    make(&c, what, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    slowest(&c, 5);
    estimate = slowest(&c, 5);
    calls = (int)(SAMPLE_NS / estimate) + 1;
    if (calls > 1) calls = (int)(SAMPLE_NS / slowest(&c, calls)) + 1;
    begun = now_ns();
    while (more) {
        for (int i = 0; i < SAMPLES_MIN && samples < SAMPLES_MAX; i++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = now_ns();
            for (int k = 0; k < calls; k++) call(&c);
            mine[samples++] = (now_ns() - start) / calls;
        }
        more = now_ns() - begun < budget_ns && samples < SAMPLES_MAX;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    long bad = wrong(&c), all_bad = 0;
    MPI_Reduce(mine, all, samples, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&bad, &all_bad, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (c.me == 0) {
        qsort(all, (size_t)samples, sizeof(double), by_value);
        printf("%s,%zu,%.4f,%.4f,%ld\n", names[what], bytes, all[samples / 2] / 1e3, all[0] / 1e3, all_bad);
        fflush(stdout);
    }
    free(c.send);
    free(c.recv);
    free(c.send_counts);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    for (int i = 2; i < argc; i++) {
        const char *colon = strchr(argv[i], ':');
        enum what what = ALL_GATHER;
        if (!colon) continue;
        while (what < NONE && (strlen(names[what]) != (size_t)(colon - argv[i]) || strncmp(names[what], argv[i], strlen(names[what])) != 0)) what++;
        if (what == NONE) {
            fprintf(stderr, "no such collective: %s\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        if (!has(what)) continue;
        measure(what, strtoull(colon + 1, NULL, 10), atof(argv[1]) * 1e6);
    }
    MPI_Finalize();
    return 0;
}
