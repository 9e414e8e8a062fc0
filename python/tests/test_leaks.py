"""Nothing is left of calls and groups that have ended: memory, descriptors, threads. A process counts its own."""

import os
import subprocess
import sys

import pytest

np = pytest.importorskip("numpy")

#: Memory that a process may have more after many rounds than before: what allocators and interpreters keep.
MORE_KIB_MAX = 4 << 10

PROGRAM = """
import os, sys, threading
import numpy as np
import muster

WARM, ROUNDS, WHAT = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def used():
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmRSS"].split()[0]), len(os.listdir("/proc/self/fd")), int(fields["Threads"])

class Dlpack:
    def __init__(self, array):
        self.array = array
    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

def calls(world, group, data):
    group.all_reduce(data)
    group.all_reduce(Dlpack(data))
    group.all_reduce_coalesced([data, data[:3]], async_op=True).wait()
    group.all_gather_object({"rank": group.rank}, async_op=True).wait()
    try:
        group.all_reduce([1])
    except TypeError:
        pass

def objects(world, group, data):
    large = world.alloc(20_000, "int64")
    assert len(group.all_gather_object([large, 1])) == 2
    group.broadcast_object(large, 1)

def groups(world, group, data):
    other = world.group("other", range(world.size))
    other.all_reduce(data)
    other.all_reduce(data, async_op=True).wait()
    other.destroy()

def rank(world):
    group = world.everyone()
    data = np.zeros(8)
    body = {"calls": calls, "objects": objects, "groups": groups}[WHAT]
    for _ in range(WARM):
        body(world, group, data)
    group.barrier()
    before = used()
    for _ in range(ROUNDS):
        body(world, group, data)
    group.barrier()
    after = used()
    # The other does not end while this one looks.
    group.barrier()
    return [now - then for now, then in zip(after, before)]

print(*muster.threads(2, rank, deadline=600)[0])
"""


@pytest.mark.parametrize("what, warm, rounds", [("calls", 500, 5000), ("objects", 50, 500), ("groups", 50, 300)])
def test_nothing_is_left_of(what, warm, rounds):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(warm), str(rounds), what],
        capture_output=True,
        text=True,
        timeout=600,
        # The allocator keeps memory for each thread otherwise.
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 0, done.stderr
    kib, descriptors, threads = (int(word) for word in done.stdout.split())
    assert kib < MORE_KIB_MAX
    # The worker of the last group may not have ended yet.
    assert descriptors <= 2 and threads <= 2, done.stdout
