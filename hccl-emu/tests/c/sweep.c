/* A program of the shape of hccl_test: MPI brings the ranks together, a sweep over sizes, a table.
 * sweep DEVICES-PER-HOST */
#include <math.h>
#include <mpi.h>

#include "common.h"

enum { ITERATIONS = 5, WARM_UP = 2 };

int main(int argc, char **argv) {
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int per_host = atoi(argv[1]);
    /* The order of hccl_test: devices are counted before the runtime is initialised. */
    uint32_t devices = 0;
    OK(aclrtGetDeviceCount(&devices));
    WANT(devices >= (uint32_t)per_host, 1);
    OK(aclInit(NULL));
    int device = my_rank % per_host;
    OK(aclrtSetDevice(device));
    WANT(aclrtGetSocName() != NULL, 1);
    size_t available = 0, total = 0;
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &available, &total));
    HcclRootInfo info;
    if (my_rank == 0) OK(HcclGetRootInfo(&info));
    MPI_Bcast(&info, HCCL_ROOT_INFO_BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    HcclComm comm;
    OK(HcclCommInitRootInfo((uint32_t)ranks, &info, (uint32_t)my_rank, &comm));
    aclrtStream stream;
    OK(aclrtCreateStream(&stream));
    OK(aclrtSetStreamFailureMode(stream, 1));
    aclrtEvent first, last;
    OK(aclrtCreateEvent(&first));
    OK(aclrtCreateEvent(&last));
    if (my_rank == 0) printf("data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result: \n");
    for (size_t bytes = 8192; bytes <= 1 << 20; bytes *= 4) {
        size_t count = bytes / 4;
        float *host = NULL;
        OK(aclrtMallocHost((void **)&host, bytes));
        for (size_t i = 0; i < count; i++) host[i] = 2;
        float *in = on_device(bytes), *out = on_device(bytes);
        to_device(in, host, bytes);
        for (int i = 0; i < WARM_UP; i++)
            OK(HcclAllReduce(in, out, count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
        OK(aclrtRecordEvent(first, stream));
        for (int i = 0; i < ITERATIONS; i++)
            OK(HcclAllReduce(in, out, count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
        OK(aclrtRecordEvent(last, stream));
        OK(aclrtSynchronizeStream(stream));
        float ms = 0;
        OK(aclrtEventElapsedTime(&ms, first, last));
        to_host(host, out, bytes);
        int errors = 0;
        for (size_t i = 0; i < count; i++) errors += fabsf(host[i] - 2.0f * (float)ranks) > 1e-6f;
        if (errors) printf("rank id %d, check result failed\n", my_rank);
        double us = ms * 1000.0 / ITERATIONS;
        if (my_rank == 0)
            printf("%-17llu | %-14.2f | %-20.5f | %s\n", (unsigned long long)bytes, us, (double)bytes / us * 1e-3,
                   errors ? "failed" : "success");
        OK(aclrtFree(in));
        OK(aclrtFree(out));
        OK(aclrtFreeHost(host));
    }
    OK(aclrtDestroyEvent(first));
    OK(aclrtDestroyEvent(last));
    OK(HcclCommDestroy(comm));
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(device));
    OK(aclFinalize());
    MPI_Finalize();
    return 0;
}
