#!/usr/bin/env python3
"""Calls of torch.distributed over gloo and over muster, in turns, in the same processes.

    torchrun --nproc-per-node 8 benches/peers/through_torch.py [--seconds 0.2] [--rounds 5] [--bytes-max BYTES]

Prints a row for each call and size: microseconds of gloo and of muster, each the median over the rounds of the slowest rank's mean, and
by which factor muster is faster, as the median over the rounds with the least and the greatest. In a world of one rank it compares the
processor time of a call with torch's backend "fake", which does nothing.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist

KIB = 1024


def small_calls():
    """Name, bytes, and what makes the call for a group."""
    x, thing = torch.zeros(2), b"x" * KIB
    yield "all_reduce", 8, lambda group: dist.all_reduce(x, group=group)
    yield "barrier", 0, lambda group: dist.barrier(group)
    yield "all_gather_object", KIB, lambda group: dist.all_gather_object([None] * dist.get_world_size(), thing, group=group)


def large_calls(size):
    """All count the longer of the buffers of a rank."""
    n = dist.get_world_size()
    block = torch.zeros(size // 4 // n)
    whole, other = torch.zeros(block.numel() * n), torch.zeros(block.numel() * n)
    yield "all_reduce", lambda group: dist.all_reduce(whole, group=group)
    yield "all_gather", lambda group: dist.all_gather_into_tensor(whole, block, group=group)
    yield "reduce_scatter", lambda group: dist.reduce_scatter_tensor(block, whole, group=group)
    yield "all_to_all", lambda group: dist.all_to_all_single(other, whole, group=group)
    yield "broadcast", lambda group: dist.broadcast(whole, 0, group=group)


def slowest(seconds, over):
    """The greatest of the ranks' numbers."""
    found = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX, group=over)
    return found.item()


def timed(call, group, count, over):
    dist.barrier(group)
    start = time.perf_counter()
    for _ in range(count):
        call(group)
    return slowest((time.perf_counter() - start) / count, over)


def compare(title, size, call, groups, arguments):
    rounds = {name: [] for name in groups}
    counts = {}
    for name, group in groups.items():
        call(group)
        once = timed(call, group, 2, groups["gloo"])
        counts[name] = max(1, min(20_000, int(arguments.seconds / once)))
    for _ in range(arguments.rounds):
        for name, group in groups.items():
            rounds[name].append(timed(call, group, counts[name], groups["gloo"]) * 1e6)
    ratios = [gloo / ours for gloo, ours in zip(rounds["gloo"], rounds["muster"])]
    if dist.get_rank() == 0:
        gloo, ours, ratio = (statistics.median(one) for one in (rounds["gloo"], rounds["muster"], ratios))
        print(f"| {title} | {size} | {gloo:.1f} | {ours:.1f} | {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |", flush=True)


def own_cost(arguments):
    """Processor time of all_reduce where nothing has to be sent, of two backends in turns."""
    import torch.testing._internal.distributed.fake_pg  # noqa: F401 (it brings the backend fake)

    x = torch.zeros(2)
    dist.init_process_group("muster", store=dist.HashStore(), rank=0, world_size=1)
    groups = {name: dist.new_group(backend=name) for name in ("fake", "muster")}
    means = {name: [] for name in groups}
    for _ in range(8 * arguments.rounds):
        for name, group in groups.items():
            start = time.process_time()
            for _ in range(2000):
                dist.all_reduce(x, group=group)
            means[name].append((time.process_time() - start) / 2000 * 1e6)
    for name, of in means.items():
        print(f"| all_reduce, one rank | 8 | {name} | {min(of):.2f} | {statistics.median(of):.2f} |", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.2, help="of a call in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes-max", type=int, default=64 * KIB * KIB, help="largest size in bytes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return own_cost(arguments)
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in ("gloo", "muster")}
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}", flush=True)
    for title, size, call in small_calls():
        compare(title, size, call, groups, arguments)
    size = 64 * KIB
    while size <= arguments.bytes_max:
        for title, call in large_calls(size):
            compare(title, size, call, groups, arguments)
        size *= 4 if size < KIB * KIB else 8
    if dist.get_rank() == 0:
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    dist.destroy_process_group()


main()
