/* Wrong calls and the codes that they get, on two devices of one process: misuse */
#include "common.h"
#include <pthread.h>

enum { COUNT = 100, TYPE = HCCL_DATA_TYPE_FP32, OP = HCCL_REDUCE_SUM };

static HcclComm comms[2];

static void initialisation(void) {
    HcclRootInfo info;
    HcclComm comm = NULL;
    /* No device is current in this thread. */
    WANT(HcclGetRootInfo(&info), HCCL_E_RUNTIME);
    TEXT("107002");
    OK(aclrtSetDevice(0));
    WANT(HcclGetRootInfo(NULL), HCCL_E_PTR);
    TEXT("EI0003", "rootInfo");
    memset(&info, 0, sizeof info);
    WANT(HcclCommInitRootInfo(2, &info, 0, &comm), HCCL_E_PARA);
    TEXT("rootInfo is empty");
    memcpy(&info, "invalid", 8);
    WANT(HcclCommInitRootInfo(2, &info, 0, &comm), HCCL_E_PARA);
    WANT(HcclCommInitRootInfo(2, NULL, 0, &comm), HCCL_E_PTR);
    WANT(HcclCommInitRootInfo(2, &info, 0, NULL), HCCL_E_PTR);
    OK(HcclGetRootInfo(&info));
    WANT(HcclCommInitRootInfo(0, &info, 0, &comm), HCCL_E_PARA);
    WANT(HcclCommInitRootInfo(2, &info, 2, &comm), HCCL_E_PARA);
    TEXT("rank is 2; allowed: 0 to 1");
    WANT(HcclCommInitRootInfoConfig(1, &info, 0, NULL, &comm), HCCL_E_PTR);
    HcclCommConfig config;
    memset(&config, 0xAA, sizeof config);
    HcclCommConfigInit(&config);
    uint32_t word = 1;
    memcpy(config.reserved + 8, &word, 4);
    WANT(HcclCommInitRootInfoConfig(1, &info, 0, &config, &comm), HCCL_E_PARA);
    TEXT("EI0003", "magic word");
    HcclCommConfigInit(&config);
    config.hcclBufferSize = 0;
    WANT(HcclCommInitRootInfoConfig(1, &info, 0, &config, &comm), HCCL_E_PARA);
    TEXT("hcclBufferSize");
    HcclCommConfigInit(&config);
    strcpy(config.hcclCommName, "alone");
    config.hcclBufferSize = 1;
    OK(HcclCommInitRootInfoConfig(1, &info, 0, &config, &comm));
    char name[128];
    OK(HcclGetCommName(comm, name));
    WANT(strcmp(name, "alone"), 0);
    HcclComm again = NULL;
    HcclRootInfo second;
    OK(HcclGetRootInfo(&second));
    WANT(HcclCommInitRootInfoConfig(1, &second, 0, &config, &again), HCCL_E_PARA);
    TEXT("already has a communicator called \"alone\"");
    WANT(HcclCommInitClusterInfo("/nonexistent/ranktable.json", 0, &again), HCCL_E_PARA);
    TEXT("EI0004");
    OK(HcclCommDestroy(comm));
    WANT(HcclCommDestroy(comm), HCCL_E_PARA);
    TEXT("was destroyed");
    OK(HcclCommDestroy(NULL));
    WANT(HcclCommDestroy((HcclComm)&word), HCCL_E_PARA);
    int32_t twice[] = {0, 0};
    WANT(HcclCommInitAll(2, twice, comms), HCCL_E_PARA);
    TEXT("listed twice");
}

static void arguments(void) {
    HcclComm comm = comms[0];
    aclrtStream stream, other;
    OK(aclrtCreateStream(&stream));
    OK(aclrtSetDevice(1));
    OK(aclrtCreateStream(&other));
    void *there = on_device(4096);
    OK(aclrtSetDevice(0));
    float *in = on_device(COUNT * 4), *out = on_device(COUNT * 4 * 2);
    float host[COUNT];
    WANT(HcclAllReduce(in, out, COUNT, TYPE, OP, NULL, stream), HCCL_E_PTR);
    WANT(HcclAllReduce(in, out, COUNT, TYPE, OP, comm, NULL), HCCL_E_PTR);
    WANT(HcclAllReduce(NULL, out, COUNT, TYPE, OP, comm, stream), HCCL_E_PTR);
    TEXT("EI0003", "sendBuf");
    WANT(HcclAllReduce(in, NULL, COUNT, TYPE, OP, comm, stream), HCCL_E_PTR);
    OK(HcclAllReduce(NULL, NULL, 0, TYPE, OP, comm, stream));
    WANT(HcclAllReduce(in, out, 0x800000000, TYPE, OP, comm, stream), HCCL_E_PARA);
    WANT(HcclAllReduce(in, out, COUNT, 13, OP, comm, stream), HCCL_E_NOT_SUPPORT);
    WANT(HcclAllReduce(in, out, COUNT, HCCL_DATA_TYPE_UINT8, OP, comm, stream), HCCL_E_NOT_SUPPORT);
    TEXT("allowed: i8, i16, i32, i64, f16, f32, bf16");
    WANT(HcclAllReduce(in, out, COUNT, TYPE, 4, comm, stream), HCCL_E_NOT_SUPPORT);
    WANT(HcclAllReduce(in, out, COUNT, HCCL_DATA_TYPE_BFP16, HCCL_REDUCE_PROD, comm, stream), HCCL_E_NOT_SUPPORT);
    WANT(HcclBroadcast(in, COUNT, TYPE, 2, comm, stream), HCCL_E_PARA);
    TEXT("root is 2; allowed: 0 to 1");
    WANT(HcclSend(in, COUNT, TYPE, 0, comm, stream), HCCL_E_PARA);
    WANT(HcclSend(in, COUNT, TYPE, 7, comm, stream), HCCL_E_PARA);
    WANT(HcclAlltoAll(in, 50, TYPE, in, 50, TYPE, comm, stream), HCCL_E_PARA);
    WANT(HcclAlltoAll(in, 50, TYPE, out, 51, TYPE, comm, stream), HCCL_E_PARA);
    WANT(HcclBatchSendRecv(NULL, 1, comm, stream), HCCL_E_PTR);
    OK(HcclBatchSendRecv(NULL, 0, comm, stream));
    uint64_t counts[] = {50, 50}, displs[] = {0, 50};
    WANT(HcclAllGatherV(in, 49, out, counts, displs, TYPE, comm, stream), HCCL_E_PARA);
    TEXT("they must be equal");
    WANT(HcclAllGatherV(in, 50, out, NULL, displs, TYPE, comm, stream), HCCL_E_PTR);
    /* Memory that is not what it should be. */
    WANT(HcclAllReduce(host, out, COUNT, TYPE, OP, comm, stream), HCCL_E_PARA);
    TEXT("host memory, not device memory");
    WANT(HcclAllReduce(in, there, COUNT, TYPE, OP, comm, stream), HCCL_E_PARA);
    TEXT("memory of device 1, not of device 0");
    WANT(HcclAllReduce(in, out, COUNT * 2 + 100, TYPE, OP, comm, stream), HCCL_E_PARA);
    TEXT("beyond its end");
    WANT(HcclAllReduce((char *)in + 1, out, 10, TYPE, OP, comm, stream), HCCL_E_PARA);
    TEXT("not aligned");
    void *gone = on_device(COUNT * 4);
    OK(aclrtFree(gone));
    WANT(HcclAllReduce(gone, out, COUNT, TYPE, OP, comm, stream), HCCL_E_PARA);
    TEXT("were freed by");
    WANT(HcclAllReduce(in, out, COUNT, TYPE, OP, comm, other), HCCL_E_RUNTIME);
    TEXT("the stream is on device 1");
    /* Destroyed from where it is not current. */
    HcclRootInfo info;
    HcclComm lone;
    OK(aclrtSetDevice(1));
    OK(HcclGetRootInfo(&info));
    OK(HcclCommInitRootInfo(1, &info, 0, &lone));
    OK(aclrtSetDevice(0));
    WANT(HcclCommDestroy(lone), HCCL_E_PARA);
    TEXT("is not one of device 0");
    OK(aclrtSetDevice(1));
    OK(HcclCommDestroy(lone));
    OK(aclrtSetDevice(0));
    WANT(HcclSetConfig(HCCL_DETERMINISTIC, (HcclConfigValue){3}), HCCL_E_PARA);
    OK(HcclSetConfig(HCCL_DETERMINISTIC, (HcclConfigValue){1}));
    HcclConfigValue value;
    OK(HcclGetConfig(HCCL_DETERMINISTIC, &value));
    WANT(value.value, 1);
    OK(aclrtDestroyStream(stream));
    WANT(HcclAllReduce(in, out, COUNT, TYPE, OP, comm, stream), HCCL_E_RUNTIME);
}

int main(void) {
    OK(aclInit(NULL));
    initialisation();
    int32_t devices[] = {0, 1};
    OK(HcclCommInitAll(2, devices, comms));
    arguments();
    /* Those of one process are found from everywhere. */
    OK(HcclCommDestroy(comms[1]));
    OK(HcclCommDestroy(comms[0]));
    WANT(HcclCommDestroy(comms[1]), HCCL_E_PARA);
    printf("misuse passed\n");
    return 0;
}
