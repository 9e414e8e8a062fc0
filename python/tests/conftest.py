"""Ranks as real processes, in bounded time, none of which is left behind."""

import os
import secrets
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional

import pytest

#: Longest time for the processes of a test; the machine may be busy.
SECONDS_MAX = 240


@dataclass
class Ended:
    """How a rank ended, and what it said."""

    code: int
    out: str
    err: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Job:
    """Processes of one test."""

    def __init__(self) -> None:
        self.processes: List[subprocess.Popen] = []

    def start(
        self, command: List[str], env: Optional[Dict[str, str]] = None, stdin: Optional[int] = None
    ) -> subprocess.Popen:
        whole = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        process = subprocess.Popen(
            command,
            env=whole,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def wait(self) -> List[Ended]:
        deadline = time.monotonic() + SECONDS_MAX
        ended = []
        for process in self.processes:
            out, err = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
            ended.append(Ended(process.returncode, out, err))
        return ended

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture
def job():
    job = Job()
    yield job
    job.end()


@pytest.fixture
def ranks(job: Job, tmp_path) -> Callable[..., List[Ended]]:
    """Runs a program as so many ranks of a world that meets where the program's arguments say: endpoint, rank, world
    size, secret. Returns how they ended."""

    def run(count: int, program: str, env: Optional[Dict[str, str]] = None) -> List[Ended]:
        script = tmp_path / "program.py"
        head = "import sys, muster\nENDPOINT, RANK, SIZE, SECRET = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]\n"
        script.write_text(head + textwrap.dedent(program))
        endpoint, secret = f"127.0.0.1:{free_port()}", secrets.token_hex(16)
        job.processes.clear()
        for rank in range(count):
            job.start([sys.executable, str(script), endpoint, str(rank), str(count), secret], env)
        return job.wait()

    return run


@pytest.fixture(scope="session")
def compiled():
    """The backend of torch.distributed, compiled before the first test that needs it, whose time would not be enough."""
    done = subprocess.run(
        [sys.executable, "-c", "from muster import _shim; _shim.load()"], capture_output=True, text=True, timeout=900
    )
    if "no C++ compiler" in done.stderr:
        pytest.skip("no C++ compiler; the backend of torch.distributed is not tested")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def torch_ranks(job: Job, tmp_path, compiled) -> Callable[..., List[Ended]]:
    """Runs a program as so many ranks of torch.distributed, with the variables that torchrun sets."""

    def run(count: int, program: str, env: Optional[Dict[str, str]] = None) -> List[Ended]:
        script = tmp_path / "program.py"
        script.write_text("import torch, torch.distributed as dist\ntorch.set_num_threads(1)\n" + textwrap.dedent(program))
        port = str(free_port())
        for rank in range(count):
            given = {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count)}
            job.start(
                [sys.executable, str(script)],
                {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1", **given, **(env or {})},
            )
        return job.wait()

    return run
