"""Ranks in the actors of a real Ray cluster on this host."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

import muster
from muster import _binary

ray = pytest.importorskip("ray")
import muster.ray  # noqa: E402

#: Of the loopback network: Ray takes 127.0.0.1 for the machine's outer address.
ADDRESS = "127.0.0.2"


@pytest.fixture(scope="module", autouse=True)
def cluster():
    # Ray's sockets need a short path.
    folder = tempfile.mkdtemp(prefix="ray-")
    ray.init(
        num_cpus=4, include_dashboard=False, _node_ip_address=ADDRESS, _temp_dir=folder, log_to_driver=False
    )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def test_the_matrix_is_verified_by_actors(capfd):
    code = muster.ray.run(4, ["verify", "tp2@4", "--sizes", "1000"])
    said = capfd.readouterr()
    assert code == 0, said
    assert "passed:" in said.out and "1 matrix" in said.out, said


def test_more_ranks_than_processors_are_refused(capfd, monkeypatch):
    monkeypatch.setattr(muster.ray, "PLACED_WITHIN", 2.0)
    assert muster.ray.run(5, ["verify", "tp1@5"]) == 2
    assert "5 ranks need 5 processors" in capfd.readouterr().err


def rank_processes(rank):
    """The processes of this user that run this rank in an actor: number and parent."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if b"WG_BACKEND=ray" in variables and f"RANK={rank}".encode() in variables:
            yield int(folder.name), parent


def caller(rank):
    """The actor of this rank, once the rank makes calls in a group."""
    for process, actor in rank_processes(rank):
        dump = subprocess.run([_binary.path(), "dump", str(process)], capture_output=True, text=True, check=False)
        if dump.returncode == 0 and any(group["entered"] > 0 for group in json.loads(dump.stdout)["ranks"][0]["groups"]):
            return actor
    return None


def test_a_killed_actor_is_named_with_its_node(capfd):
    codes = []
    arguments = ["bench", "all_reduce", "-g", "3", "-b", "1M", "-e", "1M", "-n", "1000000"]
    watcher = threading.Thread(target=lambda: codes.append(muster.ray.run(3, arguments)))
    watcher.start()
    deadline = time.monotonic() + 120
    while (actor := caller(1)) is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert actor, "the rank makes calls"
    os.kill(actor, signal.SIGKILL)
    watcher.join(120)
    said = capfd.readouterr()
    assert codes == [20], said
    assert f"rank 1: its actor on node {ADDRESS} (pid {actor}) has ended" in said.err
    assert "VERDICT PEER_DEAD who=rank 1 " in said.out + said.err


def test_actors_as_verl_starts_them_make_a_world():
    @ray.remote(num_cpus=1)
    class Worker:
        def endpoint(self):
            return muster.ray.Rank().endpoint(ADDRESS)

        def gather(self, endpoint, secret):
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            with muster.init(endpoint, rank, size, secret) as world:
                return world.everyone().all_gather_object(f"rank {rank}")

    def variables(rank):
        return {"RANK": str(rank), "WORLD_SIZE": "2", "WG_BACKEND": "ray", "RAY_LOCAL_RANK": str(rank)}

    workers = [Worker.options(runtime_env={"env_vars": variables(rank)}).remote() for rank in range(2)]
    endpoint, secret = ray.get(workers[0].endpoint.remote()), secrets.token_hex(16)
    found = ray.get([worker.gather.remote(endpoint, secret) for worker in workers])
    assert found == [["rank 0", "rank 1"]] * 2


def test_the_port_of_the_rendezvous_is_none_that_the_system_gives_away():
    first, last = (int(word) for word in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    found = {muster.ray.free_port(ADDRESS) for _ in range(20)}
    assert len(found) > 10
    assert not [port for port in found if first <= port <= last]


@ray.remote(num_cpus=1)
class Member:
    """Calls every function of ray.util.collective."""

    def __init__(self):
        muster.ray.register()

    def begin(self, size, rank, name):
        from ray.util import collective

        collective.init_collective_group(size, rank, "muster", name)

    def end(self, name):
        from ray.util import collective

        collective.destroy_collective_group(name)

    def calls(self, name):
        import numpy as np
        from ray.util import collective
        from ray.util.collective.types import ReduceOp

        # A group that the driver has declared is made by its first call.
        collective.barrier(name)
        me, n = collective.get_rank(name), collective.get_collective_group_size(name)
        data = np.full((2, 3), me + 1.0, np.float32)
        collective.allreduce(data, name, ReduceOp.PRODUCT)
        assert (data == [1, 1, 2, 6][n]).all()
        data = np.array([me + 1])
        collective.reduce(data, 1, name, ReduceOp.MAX)
        assert data == (n if me == 1 else me + 1)
        collective.broadcast(data, 1, name)
        assert data == n
        every = [np.zeros((2, 2)) for _ in range(n)]
        collective.allgather(every, np.full((2, 2), float(me)), name)
        assert [one[1, 1] for one in every] == list(range(n))
        part = np.zeros(4)
        collective.reducescatter(part, [np.full(4, float(rank)) for rank in range(n)], name)
        assert (part == me * n).all()
        if me == 0:
            collective.send(np.arange(5), 1, name)
        if me == 1:
            got = np.zeros(5, int)
            collective.recv(got, 0, name)
            assert (got == range(5)).all()
        collective.barrier(name)
        return me

    def hang(self, name):
        import numpy as np
        from ray.util import collective

        try:
            collective.allreduce(np.zeros(2 + (collective.get_rank(name) == 1)), name)
        except muster.Mismatch as error:
            return error.verdict.line


def test_groups_of_ray_util_collective_are_made_again_and_name_the_culprit():
    members = [Member.remote() for _ in range(3)]
    for _ in range(2):
        ray.get([member.begin.remote(3, rank, "first") for rank, member in enumerate(members)], timeout=120)
        assert ray.get([member.calls.remote("first") for member in members], timeout=120) == [0, 1, 2]
        lines = set(ray.get([member.hang.remote("first") for member in members], timeout=120))
        assert len(lines) == 1 and "VERDICT MISMATCH who=rank 1 " in lines.pop()
        ray.get([member.end.remote("first") for member in members], timeout=120)


def test_a_group_that_the_driver_declares():
    from ray.util import collective

    muster.ray.register()
    members = [Member.remote() for _ in range(2)]
    collective.create_collective_group(members, 2, [1, 0], "muster", "declared")
    assert ray.get([member.calls.remote("declared") for member in members], timeout=120) == [1, 0]


def test_actors_without_the_marks_of_verl_are_ranks_too():
    @ray.remote(num_cpus=1)
    class Worker:
        def gather(self):
            with muster.init() as world:
                return world.everyone().all_gather_object(world.rank)

    job = secrets.token_hex(8)

    def variables(rank):
        return {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "RAY_LOCAL_RANK": str(rank),
            "MUSTER_JOB_ID": job,
            "MUSTER_RENDEZVOUS": f"tcp://{endpoint}",
        }

    endpoint = f"{ADDRESS}:{muster.ray.free_port(ADDRESS)}"
    workers = [Worker.options(runtime_env={"env_vars": variables(rank)}).remote() for rank in range(2)]
    assert ray.get([worker.gather.remote() for worker in workers], timeout=120) == [[0, 1]] * 2
