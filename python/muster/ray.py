"""The commands of `muster` over the ranks of a Ray cluster.

`python -m muster.ray -n 8 verify tp2ep4` starts an actor for each rank, spread over the nodes as Ray places them, runs `muster verify
tp2ep4` in each, and prints the report of rank 0. `bench` and `moe` work the same way. muster must be installed on every node.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from . import _binary

#: Commands whose ranks can be processes that another launcher started.
COMMANDS = ("verify", "bench", "moe")
#: Seconds that Ray may take to give a processor to each rank.
PLACED_WITHIN = 120.0

#: Ports that are looked at; those below are for services that everybody knows.
_PORT_MIN, _PORT_MAX = 10_000, 65_535
_PORTS_TRIED = 64
_PR_SET_PDEATHSIG = 1


def _die_with_the_actor() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Rank:
    """An actor, which runs one rank in a process of its own."""

    def place(self) -> Tuple[str, int]:
        """Ray's name for the node, and the number of the actor's process."""
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def endpoint(self, address: str) -> str:
        """Where this rank can serve the rendezvous, on a node of this address."""
        return f"{address}:{free_port(address)}"

    def run(self, arguments: List[str], variables: Dict[str, str], secret: bytes) -> Tuple[int, str, str]:
        """Runs the `muster` program. Returns its exit code, standard output and standard error."""
        # A pipe leaves nothing behind where the actor is killed.
        read, write = os.pipe()
        os.write(write, secret)
        os.close(write)
        try:
            ended = subprocess.run(
                [_binary.path(), *arguments],
                env={**os.environ, **variables, "MUSTER_SECRET_FD": str(read)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                pass_fds=[read],
                preexec_fn=_die_with_the_actor,
            )
        finally:
            os.close(read)
        return ended.returncode, ended.stdout, ended.stderr


def register() -> None:
    """Makes the backend "MUSTER" known to `ray.util.collective`. Called in the driver and in every actor, before a group is
    made."""
    from ray.util.collective.backend_registry import BackendRegistry, register_collective_backend

    from ._ray_group import MusterGroup

    if not BackendRegistry().is_registered("MUSTER"):
        register_collective_backend("MUSTER", MusterGroup)


def free_port(address: str) -> int:
    """A port of this host that is free, and that the system gives to nobody who does not ask for it: whoever is told of it
    takes it a moment later."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = (int(word) for word in file.read().split())
    others = [*range(_PORT_MIN, first), *range(last + 1, _PORT_MAX + 1)]
    # Several jobs of a host that begin at once look at different ones.
    for port in [*random.sample(others, min(len(others), _PORTS_TRIED)), 0]:
        try:
            with socket.create_server((address, port)) as probe:
                return int(probe.getsockname()[1])
        except OSError as error:
            failed = error
    raise failed


def run(count: int, arguments: Sequence[str], strategy: str = "PACK") -> int:
    """Runs a command of `muster` in `count` actors and prints what rank 0 reports. Returns the exit code."""
    group = placement_group([{"CPU": 1}] * count, strategy=strategy)
    try:
        if not group.wait(PLACED_WITHIN):
            total = ray.cluster_resources().get("CPU", 0)
            print(
                f"error: {count} ranks need {count} processors, and Ray did not give them within {PLACED_WITHIN:.0f} s; "
                f"the cluster has {total:.0f}",
                file=sys.stderr,
            )
            return 2
        return _run_placed(group, count, list(arguments))
    finally:
        remove_placement_group(group)


def _run_placed(group: Any, count: int, arguments: List[str]) -> int:
    actor: Any = ray.remote(Rank)
    actors = [
        actor.options(
            num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
        ).remote()
        for rank in range(count)
    ]
    places = ray.get([one.place.remote() for one in actors])
    nodes = [node for node, _ in places]
    addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    endpoint = ray.get(actors[0].endpoint.remote(addresses[nodes[0]]))
    secret, job = secrets.token_bytes(32), secrets.token_hex(8)
    calls = [
        one.run.remote(
            arguments,
            {
                "WG_BACKEND": "ray",
                "WG_PREFIX": job,
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "RAY_LOCAL_RANK": str(nodes[:rank].count(nodes[rank])),
                "RAY_LOCAL_WORLD_SIZE": str(nodes.count(nodes[rank])),
                "MUSTER_RENDEZVOUS": f"tcp://{endpoint}",
            },
            secret,
        )
        for rank, one in enumerate(actors)
    ]
    ended = [_ended(call) for call in calls]
    for rank, one in enumerate(ended):
        if one is None:
            node, pid = places[rank]
            print(f"rank {rank}: its actor on node {addresses[node]} (pid {pid}) has ended", file=sys.stderr)
    reports = [one for one in ended if one is not None]
    if not reports:
        return 1
    # Rank 0 reports for all, and where it has ended the others say so.
    code, out, err = reports[0]
    sys.stdout.write(out)
    sys.stderr.write(err)
    return code


def _ended(call: Any) -> Optional[Tuple[int, str, str]]:
    """What a rank's program said, or None where its actor is gone."""
    try:
        return ray.get(call)
    except ray.exceptions.RayActorError:
        return None


def _connect(address: str, count: Optional[int]) -> None:
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, log_to_driver=False)
    except ConnectionError:
        if address != "auto":
            raise
        ray.init(address="local", num_cpus=count, include_dashboard=False, log_to_driver=False)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m muster.ray", description="Run a command of muster over a Ray cluster")
    parser.add_argument("-n", "--ranks", type=int, help="number of ranks, a processor each [default: all of the cluster]")
    parser.add_argument("--address", default="auto", help="address of the cluster [default: the one that runs, or a new one here]")
    parser.add_argument(
        "--strategy", default="PACK", choices=["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"], help="how nodes are filled"
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="its arguments, as `muster COMMAND --help` says")
    given = parser.parse_args(arguments)
    if given.ranks is not None and given.ranks < 1:
        parser.error(f"--ranks is {given.ranks}; it must be at least 1")
    _connect(given.address, given.ranks)
    count = given.ranks or int(ray.cluster_resources().get("CPU", 1))
    return run(count, [given.command, *given.rest], given.strategy)


if __name__ == "__main__":
    # The actors import this module by its name.
    from muster.ray import main as by_name

    sys.exit(by_name())
