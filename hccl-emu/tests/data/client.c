/* A client of the runtime, with prototypes written after the facts. Each mode exits with 0 if all is
 * well. Linked with -z now, so every name below must exist when it starts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int aclError;
typedef void *aclrtStream;
typedef void *aclrtEvent;

aclError aclInit(const char *configPath);
aclError aclFinalize(void);
const char *aclGetRecentErrMsg(void);
const char *aclrtGetSocName(void);
aclError aclrtGetDeviceCount(uint32_t *count);
aclError aclrtSetDevice(int32_t deviceId);
aclError aclrtResetDevice(int32_t deviceId);
aclError aclrtGetPhyDevIdByLogicDevId(int32_t logicDevId, int32_t *phyDevId);
aclError aclrtGetMemInfo(int attr, size_t *free, size_t *total);
aclError aclrtMalloc(void **devPtr, size_t size, int policy);
aclError aclrtFree(void *devPtr);
aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, int kind);
aclError aclrtMallocHost(void **hostPtr, size_t size);
aclError aclrtFreeHost(void *hostPtr);
aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, int kind, aclrtStream stream);
aclError aclrtCreateStream(aclrtStream *stream);
aclError aclrtDestroyStream(aclrtStream stream);
aclError aclrtSynchronizeStream(aclrtStream stream);
aclError aclrtCreateEvent(aclrtEvent *event);
aclError aclrtDestroyEvent(aclrtEvent event);
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);
/* Named, and never called: they must exist all the same. */
aclError aclrtLaunchKernel(void *func, uint32_t blockDim, const void *args, size_t size, aclrtStream stream);
aclError aclprofInit(const char *path, size_t length);
aclError aclmdlRICaptureBegin(aclrtStream stream, int mode);
const char *muster_emu_version(void);

#define CHECK(call)                                                                              \
    do {                                                                                         \
        aclError code = (call);                                                                  \
        if (code != 0) {                                                                         \
            const char *text = aclGetRecentErrMsg();                                             \
            fprintf(stderr, "%s: %d\n%s\n", #call, code, text ? text : "");                      \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define REQUIRE(condition)                                                                       \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "not so: %s (line %d)\n", #condition, __LINE__);                     \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

/* All four names give the same function, and one handle gives the functions of the other library. */
static int names(void)
{
    static const char *const files[] = {"libhccl.so", "libhcomm.so", "libascendcl.so", "libacl_rt.so"};
    static const char *const functions[] = {"aclrtSetDevice", "aclrtLaunchHostFunc", "HcclEngineCtxCreate"};
    for (size_t function = 0; function < 3; function++) {
        void *first = NULL;
        for (size_t file = 0; file < 4; file++) {
            void *handle = dlopen(files[file], RTLD_NOW | RTLD_LOCAL);
            REQUIRE(handle != NULL);
            void *found = dlsym(handle, functions[function]);
            REQUIRE(found != NULL);
            REQUIRE(first == NULL || first == found);
            first = found;
        }
    }
    REQUIRE((void *)aclrtSetDevice == dlsym(dlopen("libhcomm.so", RTLD_NOW), "aclrtSetDevice"));
    return 0;
}

/* Host to device, device to device on a second stream behind an event, and back. */
static int work(void)
{
    enum { COUNT = 100000 };
    const size_t bytes = COUNT * sizeof(uint32_t);
    void *host_in, *host_out, *first, *second;
    aclrtStream streams[2];
    aclrtEvent event;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(1));
    CHECK(aclrtMallocHost(&host_in, bytes));
    CHECK(aclrtMallocHost(&host_out, bytes));
    CHECK(aclrtMalloc(&first, bytes, 0));
    CHECK(aclrtMalloc(&second, bytes, 0));
    CHECK(aclrtCreateStream(&streams[0]));
    CHECK(aclrtCreateStream(&streams[1]));
    CHECK(aclrtCreateEvent(&event));
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t at = 0; at < COUNT; at++)
            ((uint32_t *)host_in)[at] = at * 3 + round;
        CHECK(aclrtMemcpyAsync(first, bytes, host_in, bytes, 1, streams[0]));
        CHECK(aclrtRecordEvent(event, streams[0]));
        CHECK(aclrtStreamWaitEvent(streams[1], event));
        CHECK(aclrtMemcpyAsync(second, bytes, first, bytes, 3, streams[1]));
        CHECK(aclrtMemcpyAsync(host_out, bytes, second, bytes, 2, streams[1]));
        CHECK(aclrtSynchronizeStream(streams[1]));
        REQUIRE(memcmp(host_in, host_out, bytes) == 0);
    }
    CHECK(aclrtDestroyEvent(event));
    CHECK(aclrtDestroyStream(streams[0]));
    CHECK(aclrtDestroyStream(streams[1]));
    CHECK(aclrtFree(first));
    CHECK(aclrtFree(second));
    CHECK(aclrtFreeHost(host_in));
    CHECK(aclrtFreeHost(host_out));
    CHECK(aclrtResetDevice(1));
    CHECK(aclFinalize());
    return 0;
}

static int show(void)
{
    uint32_t count = 0;
    aclError code = aclrtGetDeviceCount(&count);
    printf("count %d %u\n", code, count);
    if (code != 0)
        return 0;
    printf("%s\nsoc %s\n", muster_emu_version(), aclrtGetSocName());
    int32_t physical = -1;
    CHECK(aclrtGetPhyDevIdByLogicDevId(0, &physical));
    printf("physical %d\n", physical);
    CHECK(aclrtSetDevice(0));
    size_t free_bytes = 0, total = 0;
    CHECK(aclrtGetMemInfo(1, &free_bytes, &total));
    printf("memory %zu %zu\n", free_bytes, total);
    void *memory;
    CHECK(aclrtMalloc(&memory, 1 << 20, 0));
    return 0;
}

/* Ends with a stream that waits for ever. */
static int leave(void)
{
    aclrtStream streams[2];
    aclrtEvent event;
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&streams[0]));
    CHECK(aclrtCreateStream(&streams[1]));
    CHECK(aclrtCreateEvent(&event));
    CHECK(aclrtRecordEvent(event, streams[0]));
    CHECK(aclrtResetEvent(event, streams[0]));
    CHECK(aclrtSynchronizeStream(streams[0]));
    CHECK(aclrtStreamWaitEvent(streams[1], event));
    return 0;
}

/* Memory of this process that is resident, in KiB: its own and that of the devices. */
static long resident_kib(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    REQUIRE(status != NULL);
    char line[256];
    long kib = -1;
    while (fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    fclose(status);
    REQUIRE(kib > 0);
    return kib;
}

static void churn_once(size_t bytes, const void *data)
{
    void *memory;
    CHECK(aclrtMalloc(&memory, bytes, 0));
    CHECK(aclrtMemcpy(memory, bytes, data, bytes, 1));
    CHECK(aclrtFree(memory));
}

/* Takes memory, writes it and frees it, a million times and once more after each reset of the device;
 * prints by how much resident memory has grown at most, and what is left after a reset, in KiB. */
static int churn(void)
{
    static const size_t sizes[] = {1024, 1, 5000};
    enum { ROUNDS = 1000000, RESETS = 4, KEPT = 100000 };
    static char data[65536];
    static void *kept[KEPT];
    CHECK(aclrtSetDevice(2));
    churn_once(sizeof data, data);
    const long before = resident_kib();
    long most = before;
    for (long round = 0; round < ROUNDS; round++) {
        churn_once(round % 8 == 0 ? sizeof data : sizes[round % 3], data);
        if (round % (ROUNDS / 50) == 0 && resident_kib() > most)
            most = resident_kib();
        if (round % (ROUNDS / RESETS) == ROUNDS / RESETS - 1) {
            CHECK(aclrtResetDevice(2));
            CHECK(aclrtSetDevice(2));
        }
    }
    printf("churn %ld\n", most - before);
    /* What was in use at one time goes back too. */
    for (size_t at = 0; at < KEPT; at++)
        CHECK(aclrtMalloc(&kept[at], 1024, 0));
    printf("kept %ld\n", resident_kib() - before);
    for (size_t at = 0; at < KEPT; at++)
        CHECK(aclrtFree(kept[at]));
    printf("freed %ld\n", resident_kib() - before);
    CHECK(aclrtResetDevice(2));
    printf("reset %ld\n", resident_kib() - before);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 9) {
        aclrtLaunchKernel(NULL, 0, NULL, 0, NULL);
        aclprofInit(NULL, 0);
        aclmdlRICaptureBegin(NULL, 0);
    }
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "names") == 0)
        return names();
    if (strcmp(mode, "work") == 0)
        return work();
    if (strcmp(mode, "show") == 0)
        return show();
    if (strcmp(mode, "leave") == 0)
        return leave();
    if (strcmp(mode, "churn") == 0)
        return churn();
    return 2;
}
