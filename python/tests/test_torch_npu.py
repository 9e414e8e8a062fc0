"""Unmodified torch_npu over the emulator of HCCL: ranks under torchrun, on a machine without an NPU."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where torch_npu lies, if it is not among the packages of this Python: there it would load itself with every torch.
FOLDER = os.environ.get("TORCH_NPU_FOLDER")
LIMIT_S = 300

RANKS = """
import os
import torch, torch_npu
import torch.distributed as dist

torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("hccl")
rank, size = dist.get_rank(), dist.get_world_size()
total = size * (size - 1) // 2

def on_device(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).npu()

def empty(count):
    return torch.empty(count).npu()

def expect(tensor, *values):
    assert tensor.device.type == "npu"
    assert tensor.cpu().tolist() == list(values), (rank, tensor.cpu().tolist(), values)

# Copies and fills.
expect(torch.zeros(3, device="npu"), 0, 0, 0)
expect(torch.ones(2, device="npu").fill_(7), 7, 7)
expect(torch.arange(6.0).npu()[::2].contiguous(), 0, 2, 4)
expect(torch.arange(4.0).npu().view(2, 2).t().contiguous().view(-1), 0, 2, 1, 3)
strided = torch.arange(6.0).npu()
strided[::2].copy_(on_device(7.0, 8.0, 9.0))
expect(strided, 7, 1, 8, 3, 9, 5)

# Collectives.
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8):
    tensor = on_device(rank, 1, dtype=dtype)
    dist.all_reduce(tensor)
    expect(tensor, total, size)
tensor = on_device(rank, -rank)
dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
expect(tensor, size - 1, 0)
work = dist.all_reduce(tensor := on_device(rank), async_op=True)
work.wait()
expect(tensor, total)
dist.broadcast(tensor := on_device(rank * 10 + 5), 1)
expect(tensor, 15)
dist.reduce(tensor := on_device(rank), 0)
if rank == 0:
    expect(tensor, total)
dist.all_gather_into_tensor(tensor := empty(2 * size), on_device(rank, -rank))
expect(tensor, *[sign * of for of in range(size) for sign in (1, -1)])
dist.reduce_scatter_tensor(tensor := empty(1), on_device(*range(size)))
expect(tensor, rank * size)
dist.reduce_scatter(tensor := empty(1), [on_device(of) for of in range(size)])
expect(tensor, rank * size)
dist.all_to_all_single(tensor := empty(size), on_device(*[rank * size + to for to in range(size)]))
expect(tensor, *[of * size + rank for of in range(size)])
sent = torch.arange(float(total + size)).npu()
dist.all_to_all_single(tensor := empty((rank + 1) * size), sent, [rank + 1] * size, [to + 1 for to in range(size)])
first = rank * (rank + 1) // 2
expect(tensor, *[first + at for _ in range(size) for at in range(rank + 1)])
dist.scatter(tensor := empty(1), [on_device(to * 3) for to in range(size)] if rank == 0 else None, 0)
expect(tensor, rank * 3)
if rank == 0:
    dist.send(on_device(7, 8), 1)
if rank == 1:
    dist.recv(tensor := empty(2), 0)
    expect(tensor, 7, 8)
tensor = empty(1)
ring = [
    dist.P2POp(dist.isend, on_device(rank), (rank + 1) % size),
    dist.P2POp(dist.irecv, tensor, (rank - 1) % size),
]
for work in dist.batch_isend_irecv(ring):
    work.wait()
expect(tensor, (rank - 1) % size)
# Forms that torch_npu makes of these and of operators that move, convert and add.
gathered = [empty(2) for _ in range(size)]
dist.all_gather(gathered, on_device(rank, -rank))
for of in range(size):
    expect(gathered[of], of, -of)
gathered = [empty(of + 1) for of in range(size)]
dist.all_gather(gathered, on_device(*[rank] * (rank + 1)))
for of in range(size):
    expect(gathered[of], *[of] * (of + 1))
gathered = [empty(2) for _ in range(size)] if rank == 0 else None
dist.gather(on_device(rank, -rank), gathered, 0)
if rank == 0:
    for of in range(size):
        expect(gathered[of], of, -of)
exchanged = [empty(1) for _ in range(size)]
dist.all_to_all(exchanged, [on_device(rank * size + to) for to in range(size)])
for of in range(size):
    expect(exchanged[of], of * size + rank)
dist.all_reduce(tensor := on_device(rank, 1), op=dist.ReduceOp.AVG)
expect(tensor, total / size, 1)
dist.reduce_scatter_tensor(tensor := empty(1), on_device(*range(size)), op=dist.ReduceOp.AVG)
expect(tensor, rank)

# Objects, which lie on the device while they travel.
thing = {"rank": rank, "text": "x" * (10 * rank)}
every = [{"rank": of, "text": "x" * (10 * of)} for of in range(size)]
dist.all_gather_object(things := [None] * size, thing)
assert things == every, things
dist.gather_object(thing, things := [None] * size if rank == 0 else None)
assert rank != 0 or things == every, things
dist.broadcast_object_list(things := [thing, rank], 1)
assert things == [every[1], 1], things
dist.scatter_object_list(things := [None], every if rank == 0 else None, 0)
assert things == [thing], things
if rank == 0:
    dist.send_object_list([thing], 1)
if rank == 1:
    dist.recv_object_list(things := [None], 0)
    assert things == [every[0]], things
dist.barrier()
even = dist.new_group(list(range(0, size, 2)))
if rank % 2 == 0:
    dist.all_reduce(tensor := on_device(1), group=even)
    expect(tensor, (size + 1) // 2)

# What needs a kernel is refused by name.
try:
    tensor = on_device(4.0).sqrt()
    torch.npu.synchronize()
except RuntimeError as error:
    assert "Sqrt" in str(error), error
else:
    raise AssertionError("an operator without a kernel gave a result")
dist.destroy_process_group()
print(f"rank {rank} of {size} passed", flush=True)
"""


# One rank does something else than the others.
TAPPED = """
import os, signal, sys, time
import torch, torch_npu
import torch.distributed as dist

fault, odd = sys.argv[1], os.environ["RANK"] == sys.argv[2]
torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
if odd and fault == "creation":
    time.sleep(1000)
dist.init_process_group("hccl")

def on_device(count, dtype=torch.float32):
    return torch.ones(count, dtype=dtype).npu()

for _ in range(5):
    dist.all_reduce(on_device(4))
    torch.npu.synchronize()
everybody = list(range(dist.get_world_size()))
groups = [dist.new_group(everybody) for _ in range(2)]
for group in groups:
    dist.all_reduce(on_device(4), group=group)
    torch.npu.synchronize()
try:
    # Of all_reduce, on torch_npu: the sixth on this communicator, and the one that devices and links fail in.
    dist.barrier()
    torch.npu.synchronize()
except RuntimeError:
    # As a framework does that has much to end. torch_npu's watchdog asks its communicators once a second.
    time.sleep(3)
    raise
if odd and fault in ("asleep", "object"):
    time.sleep(1000)
if odd and fault == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
if odd and fault == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if odd and fault == "exits":
    os._exit(7)
if fault == "object":
    dist.all_gather_object([None for _ in everybody], "a thing")
elif fault == "order":
    tensors = [on_device(4), on_device(4)]
    for group, tensor in zip(reversed(groups) if odd else groups, tensors):
        dist.all_reduce(tensor, group=group)
elif fault == "root":
    dist.broadcast(on_device(4), int(odd))
else:
    dtype = torch.int32 if odd and fault == "dtype" else torch.float32
    dist.all_reduce(on_device(5 if odd and fault == "count" else 4, dtype))
torch.npu.synchronize()
dist.destroy_process_group()
"""

# Of each fault the emulator's variable, the class of the verdict and what it says; "ODD" is the odd rank.
FAULTS = {
    "none": ("", None, ""),
    "asleep": ("", "NOT_JOINED", "who=rank ODD "),
    "object": ("", "NOT_JOINED", "who=rank ODD "),
    "creation": ("", "NOT_JOINED", "who=rank ODD "),
    "stopped": ("", "PEER_FROZEN", "who=rank ODD "),
    "killed": ("", "PEER_DEAD", "who=rank ODD "),
    "exits": ("", "PEER_DEAD", "who=rank ODD "),
    "count": ("", "MISMATCH", "count differs"),
    "dtype": ("", "MISMATCH", "dtype differs"),
    "root": ("", "MISMATCH", "root differs"),
    "order": ("", "DEADLOCK", "wait for rank ODD in all_reduce #2"),
    "device": ("device_lost:rank=ODD,op=all_reduce,k=6", "RESOURCE", "who=rank ODD "),
    "link": ("link_down:rank=ODD,peer=0,after=5", "LINK", "what=all_reduce #6 on "),
}


def tool():
    """The newest build of the tool in this clone; None without one."""
    built = [ROOT / "target" / profile / "muster" for profile in ("release", "debug")]
    built = sorted((path for path in built if path.is_file()), key=lambda path: path.stat().st_mtime)
    return built[-1] if built else None


def toolkit(folder):
    """An emulated toolkit; None without the tool."""
    if tool() is None:
        return None
    subprocess.run([tool(), "emu", "install", folder], check=True, capture_output=True, timeout=LIMIT_S)
    return folder / "latest"


def start(size, folder, script, *, before=(), arguments=(), variables=None):
    """Runs a script under torchrun over emulated devices; what has ended."""
    if FOLDER is None and importlib.util.find_spec("torch_npu") is None:
        pytest.skip("no torch_npu: neither in TORCH_NPU_FOLDER nor among the packages of this Python")
    home = toolkit(folder / "toolkit")
    if home is None:
        pytest.skip("the tool is not built: cargo build")
    (folder / "ranks.py").write_text(script)
    environment = {
        **os.environ,
        "PYTHONPATH": FOLDER or "",
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "LD_LIBRARY_PATH": str(home / "lib64"),
        "HCCL_HOST_SOCKET_PORT_RANGE": "auto",
        "XDG_RUNTIME_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
        **(variables or {}),
    }
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    command = [*before, *launcher, folder / "ranks.py", *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize("size", [2, 8])
def test_copies_fills_and_collectives_of_torch_npu_are_right_on_emulated_devices(size, tmp_path):
    ended = start(size, tmp_path, RANKS, variables={"TASK_QUEUE_ENABLE": "0"})
    assert ended.returncode == 0, ended.stdout + ended.stderr[-8000:]
    for rank in range(size):
        assert f"rank {rank} of {size} passed" in ended.stdout


@pytest.mark.parametrize("fault", FAULTS)
def test_the_tap_names_who_holds_up_ranks_of_torch_npu(fault, tmp_path):
    odd, (device, found, text) = "2", FAULTS[fault]
    tap = [tool(), "tap", "run", "--after", "5", "--on-verdict", "abort", "--"]
    variables = {"MUSTER_EMU_FAULT": device.replace("ODD", odd)} if device else {}
    ended = start(3, tmp_path, TAPPED, before=tap, arguments=[fault, odd], variables=variables)
    verdicts = [line for line in ended.stderr.splitlines() if line.startswith("VERDICT ")]
    if found is None:
        assert (ended.returncode, verdicts) == (0, []), ended.stderr[-8000:]
        return
    # The emulator may have a verdict of its own when the job is ended.
    assert verdicts, ended.stdout + ended.stderr[-8000:]
    assert verdicts[0].startswith(f"VERDICT {found} "), verdicts
    assert text.replace("ODD", odd) in verdicts[0], verdicts


def test_calls_of_torch_npu_are_recorded_by_the_tap_and_made_again(tmp_path):
    recording = tmp_path / "recording"
    tap = [tool(), "tap", "run", "--record", recording, "--"]
    ended = start(4, tmp_path, RANKS, before=tap, variables={"TASK_QUEUE_ENABLE": "0"})
    assert ended.returncode == 0, ended.stdout + ended.stderr[-8000:]
    for backend in ("host", "hccl"):
        replay = [tool(), "replay", recording, "--pauses", "none", "--backend", backend, "--format", "json"]
        environment = {**os.environ, "ASCEND_HOME_PATH": str(tmp_path / "toolkit" / "latest")}
        made = subprocess.run(replay, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        assert made.returncode == 0, made.stderr
        told = json.loads(made.stdout)
        assert (told["ranks"], told["left_out"], told["lost"]) == (4, 0, 0)
        assert told["calls"] == told["outcome"]["calls"] == told["outcome"]["checked"]
        assert {"all_reduce", "all_to_all_v", "broadcast"} <= set(told["outcome"]["times_ns"])
