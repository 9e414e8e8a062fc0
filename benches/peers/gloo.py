"""torch.distributed with gloo, measured as `muster bench` measures itself (docs/metrics.md).

usage: gloo.py RANKS MILLISECONDS CELL...      CELL = collective:bytes; RANKS "env": this is one rank, as RANK and WORLD_SIZE say
Prints for each cell: collective,bytes,median_us,min_us,wrong
"""

import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SAMPLE_S = 5e-6
SAMPLES_MAX = 20000


def prepare(what, size, n, me):
    """The call, and how many elements of its result are wrong."""
    blocks = n if what in ("all_gather", "all_to_all", "reduce_scatter") else 1
    count = max(size // 4 // blocks, 1)
    send = torch.full((count * (n if what in ("all_to_all", "reduce_scatter") else 1),), float(me + 1))
    recv = torch.zeros(count * (n if what in ("all_to_all", "all_gather") else 1))
    ranks = torch.arange(1, n + 1, dtype=torch.float32)
    if what == "all_reduce_bf16":
        send = torch.full((size // 2,), float(me + 1), dtype=torch.bfloat16)
        recv = torch.zeros_like(send)
        what = "all_reduce"
    if what == "barrier":
        return dist.barrier, lambda: 0
    if what == "group_create":
        def call():
            made = dist.new_group(range(n))
            dist.barrier(made)
            dist.destroy_process_group(made)
        return call, lambda: 0
    if what == "all_gather_object":
        mine, all_of_them = bytes([me + 1]) * (size // n), [None] * n
        right = [bytes([rank + 1]) * (size // n) for rank in range(n)]
        return lambda: dist.all_gather_object(all_of_them, mine), lambda: int(all_of_them != right)
    if what == "broadcast_object":
        right, got = [bytes(size)], [None]
        def call():
            got[0] = right[0] if me == 0 else None
            dist.broadcast_object_list(got, 0)
        return call, lambda: int(got != right)
    if what == "all_reduce":
        def call():
            recv.copy_(send)
            dist.all_reduce(recv)
        return call, lambda: int((recv != ranks.sum()).sum())
    if what == "broadcast":
        recv.fill_(float(me + 1))
        return lambda: dist.broadcast(recv, 0), lambda: int((recv != 1).sum())
    if what == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(recv, send), lambda: int((recv != ranks.sum()).sum())
    right = ranks.repeat_interleave(count)
    if what == "all_gather":
        return lambda: dist.all_gather_into_tensor(recv, send), lambda: int((recv != right).sum())
    if what == "all_to_all":
        return lambda: dist.all_to_all_single(recv, send), lambda: int((recv != right).sum())
    return None, None


def slowest(times):
    times = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times


def rank(me, n, place, budget, cells):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=place, rank=me, world_size=n)
    for cell in cells:
        what, size = cell.split(":")
        call, wrong = prepare(what, int(size), n, me)
        if call is None:
            continue
        for _ in range(5):
            call()
        start = time.perf_counter()
        for _ in range(5):
            call()
        estimate = slowest([(time.perf_counter() - start) / 5]).item()
        calls = int(SAMPLE_S / estimate) + 1
        samples, begun, more = [], time.perf_counter(), torch.ones(1)
        while more.item():
            for _ in range(8):
                dist.barrier()
                start = time.perf_counter()
                for _ in range(calls):
                    call()
                samples.append((time.perf_counter() - start) / calls)
            more.fill_(float(time.perf_counter() - begun < budget and len(samples) < SAMPLES_MAX))
            dist.broadcast(more, 0)
        bad = torch.tensor([wrong()])
        dist.all_reduce(bad)
        times = slowest(samples).sort().values * 1e6
        if me == 0:
            print(f"{what},{size},{times[len(times) // 2]:.4f},{times[0]:.4f},{bad.item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    import os
    import socket

    budget, cells = float(sys.argv[2]) / 1e3, sys.argv[3:]
    if sys.argv[1] == "env":
        rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://", budget, cells)
        sys.exit()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    ranks = int(sys.argv[1])
    mp.spawn(rank, (ranks, f"tcp://127.0.0.1:{free}", budget, cells), nprocs=ranks)
