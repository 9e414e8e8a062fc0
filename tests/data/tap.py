"""A Python program that calls HCCL by ctypes: tap.py RANKS FOLDER FAULT VICTIM. It starts its ranks, which meet by files in FOLDER,
and each ends with "rank N well"."""

import ctypes
import os
import subprocess
import sys
import time

ROUNDS, COUNT = 20, 1000
FP32, SUM, HUGE_FIRST, ROOT_INFO_BYTES = 4, 0, 0, 4108


def load_batch():
    while True:
        time.sleep(60)


def meet(hccl, folder, me):
    path = os.path.join(folder, "root")
    info = ctypes.create_string_buffer(ROOT_INFO_BYTES)
    if me == 0:
        assert hccl.HcclGetRootInfo(info) == 0
        with open(path + ".part", "wb") as file:
            file.write(info.raw)
        os.rename(path + ".part", path)
    while not os.path.exists(path):
        time.sleep(0.002)
    with open(path, "rb") as file:
        return ctypes.create_string_buffer(file.read(), ROOT_INFO_BYTES)


def train(ranks, folder, fault, me):
    acl, hccl = ctypes.CDLL("libascendcl.so"), ctypes.CDLL("libhccl.so")
    stream, comm, source, target = (ctypes.c_void_p() for _ in range(4))
    assert acl.aclInit(None) == 0
    assert acl.aclrtSetDevice(me) == 0
    assert acl.aclrtCreateStream(ctypes.byref(stream)) == 0
    for memory in (source, target):
        assert acl.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(4 * COUNT), HUGE_FIRST) == 0
    info = meet(hccl, folder, me)
    assert hccl.HcclCommInitRootInfo(ranks, info, me, ctypes.byref(comm)) == 0
    for step in range(ROUNDS):
        if step == ROUNDS - 1 and fault == "asleep":
            load_batch()
        count = ctypes.c_uint64(COUNT - 1 if fault == "count" and step == ROUNDS - 1 else COUNT)
        assert hccl.HcclAllReduce(source, target, count, FP32, SUM, comm, stream) == 0
        assert acl.aclrtSynchronizeStream(stream) == 0
        time.sleep(0.03)
    assert hccl.HcclCommDestroy(comm) == 0
    print(f"rank {me} well", flush=True)


def main():
    ranks, folder, fault, victim, *mine = sys.argv[1:]
    if mine:
        me = int(mine[0])
        train(int(ranks), folder, fault if me == int(victim) else "none", me)
        return
    words = [sys.executable, *sys.argv]
    started = [
        subprocess.Popen([*words, str(rank)], env=dict(os.environ, RANK=str(rank), WORLD_SIZE=ranks)) for rank in range(int(ranks))
    ]
    codes = [one.wait() for one in started]
    sys.exit(any(codes))


main()
