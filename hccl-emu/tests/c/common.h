/* What the clients of the tests share: checks, and elements of every type. */
#ifndef COMMON_H
#define COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emulated_api.h"

static int my_rank = -1;

static void die(const char *file, int line, const char *what, long got, long want) {
    const char *text = aclGetRecentErrMsg();
    printf("rank %d FAILED %s:%d: %s gave %ld, want %ld\n%s\n", my_rank, file, line, what, got, want,
           text ? text : "");
    fflush(stdout);
    _exit(1);
}

#define WANT(call, want)                                                   \
    do {                                                                   \
        long got_ = (long)(call);                                          \
        if (got_ != (long)(want)) die(__FILE__, __LINE__, #call, got_, (long)(want)); \
    } while (0)
#define OK(call) WANT(call, 0)

/* The text of the last failure must hold every word. */
static void want_text(int line, const char *const *words) {
    const char *text = aclGetRecentErrMsg();
    for (int i = 0; words[i]; i++) {
        if (!text || !strstr(text, words[i])) {
            printf("rank %d FAILED line %d: no \"%s\" in: %s\n", my_rank, line, words[i],
                   text ? text : "(nothing)");
            fflush(stdout);
            _exit(1);
        }
    }
}
#define TEXT(...) want_text(__LINE__, (const char *const[]){__VA_ARGS__, NULL})

/* Bytes of an element. */
static size_t bytes_of(int type) {
    static const unsigned char sizes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2, 16, 0, 1, 1, 1, 1};
    return sizes[type];
}

static uint16_t to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value == 0) return 0;
    uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
    return (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)(exponent << 10) | (uint16_t)(bits >> 13 & 0x3ff);
}

/* Writes a small whole number as an element. */
static void put(void *at, int type, long value) {
    float single = (float)value;
    double twice = (double)value;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    uint16_t brain = (uint16_t)(bits >> 16), half = to_half(single);
    memset(at, 0, bytes_of(type));
    switch (type) {
    case HCCL_DATA_TYPE_FP32: memcpy(at, &single, 4); break;
    case HCCL_DATA_TYPE_FP64: memcpy(at, &twice, 8); break;
    case HCCL_DATA_TYPE_FP16: memcpy(at, &half, 2); break;
    case HCCL_DATA_TYPE_BFP16: memcpy(at, &brain, 2); break;
    default: memcpy(at, &value, bytes_of(type) < 8 ? bytes_of(type) : 8); break;
    }
}

/* What a rank contributes at a place: small, so that sums over eight ranks are exact in all types. */
static long value_of(long rank, long place) { return (rank + place) % 3 + 1; }
/* The same for products: few are above one. */
static long factor_of(long rank, long place) { return (rank + place) % 4 == 0 ? 2 : 1; }

static void *on_device(size_t bytes) {
    void *memory = NULL;
    OK(aclrtMalloc(&memory, bytes ? bytes : 1, ACL_MEM_MALLOC_HUGE_FIRST));
    return memory;
}

static void to_device(void *device, const void *host, size_t bytes) {
    OK(aclrtMemcpy(device, bytes, host, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
}

static void to_host(void *host, const void *device, size_t bytes) {
    OK(aclrtMemcpy(host, bytes, device, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
}

static void same(int line, const char *what, const void *got, const void *want, size_t bytes, int type) {
    if (memcmp(got, want, bytes) == 0) return;
    const unsigned char *a = got, *b = want;
    size_t at = 0;
    while (a[at] == b[at]) at++;
    printf("rank %d FAILED line %d: %s, type %d: byte %zu of %zu is %#x, want %#x\n", my_rank, line, what,
           type, at, bytes, a[at], b[at]);
    fflush(stdout);
    _exit(1);
}

/* Rank 0 leaves the root info in a file, the others wait for it. */
static void share(const char *path, int rank, HcclRootInfo *info) {
    char part[4096];
    if (rank == 0) {
        snprintf(part, sizeof part, "%s.part", path);
        FILE *file = fopen(part, "wb");
        if (!file || fwrite(info, sizeof *info, 1, file) != 1 || fclose(file)) die(__FILE__, __LINE__, part, 0, 1);
        if (rename(part, path)) die(__FILE__, __LINE__, path, 0, 1);
        return;
    }
    FILE *file;
    while (!(file = fopen(path, "rb"))) usleep(1000);
    if (fread(info, sizeof *info, 1, file) != 1) die(__FILE__, __LINE__, path, 0, 1);
    fclose(file);
}

#endif
