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
