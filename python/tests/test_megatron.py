"""An unchanged Megatron-core under torchrun, with muster in gloo's place."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("megatron.core", reason="Megatron-core is not installed; it is not tested")

PROGRAM = """
import json, os, pathlib, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist
from megatron.core import parallel_state as state
from megatron.core.tensor_parallel import mappings

# Megatron makes buffers on the current GPU.
torch.cuda.current_device = lambda: "cpu"
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
assert type(dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))).__name__ != "ProcessGroupGloo"
state.initialize_model_parallel(
    tensor_model_parallel_size=2, expert_model_parallel_size=4, expert_tensor_parallel_size=1, create_gloo_process_groups=True
)
default = dist.distributed_c10d._get_default_group()
made = [(group.group_desc, dist.get_process_group_ranks(group)) for group in dist.distributed_c10d._world.pg_map if group is not default]

# Every group sums what its members have.
for group in dist.distributed_c10d._world.pg_map:
    one = torch.tensor([2.0**rank])
    dist.all_reduce(one, group=group)
    assert one.item() == sum(2.0**member for member in dist.get_process_group_ranks(group))

at, of = state.get_tensor_model_parallel_rank(), state.get_tensor_model_parallel_world_size()
assert (at, of) == (rank % 2, 2)
whole = torch.arange(24.0).reshape(4, 6)
mine = whole.chunk(of, dim=1)[at].contiguous()
rows = whole.chunk(of, dim=0)[at].contiguous()

def gradient(function, given, weight):
    given = given.clone().requires_grad_()
    result = function(given)
    (result * weight).sum().backward()
    return result.detach(), given.grad

result, grad = gradient(mappings.copy_to_tensor_model_parallel_region, whole, at + 1.0)
assert torch.equal(result, whole) and (grad == 3).all()
result, grad = gradient(mappings.reduce_from_tensor_model_parallel_region, whole * (at + 1), 5.0)
assert torch.equal(result, whole * 3) and (grad == 5).all()
result, grad = gradient(mappings.scatter_to_tensor_model_parallel_region, whole, 2.0)
assert torch.equal(result, mine) and (grad == 2).all()
result, grad = gradient(mappings.gather_from_tensor_model_parallel_region, mine, whole)
assert torch.equal(result, whole) and torch.equal(grad, mine)
result, grad = gradient(mappings.scatter_to_sequence_parallel_region, whole, 2.0)
assert torch.equal(result, rows) and (grad == 2).all()
result, grad = gradient(mappings.gather_from_sequence_parallel_region, rows, whole)
assert torch.equal(result, whole) and torch.equal(grad, rows * 2)
result, grad = gradient(mappings.reduce_scatter_to_sequence_parallel_region, whole, at + 1.0)
assert torch.equal(result, rows * 2) and torch.equal(grad, torch.tensor([1.0] * 2 + [2.0] * 2)[:, None].expand(4, 6))

group = state.get_expert_model_parallel_group()
tokens = torch.arange(8.0) + 100 * rank
result, grad = gradient(lambda given: mappings.all_to_all(group, given), tokens, 1.0)
members = dist.get_process_group_ranks(group)
place = members.index(rank)
assert result.tolist() == [100.0 * member + 2 * place + k for member in members for k in range(2)]
pathlib.Path(__file__).with_name(f"rank{rank}.json").write_text(json.dumps(made))
dist.barrier()
dist.destroy_process_group()
"""


def test_its_groups_are_those_of_muster_groups_and_its_mappings_are_right(job, tmp_path, compiled):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "8", str(script)]
    job.start(command, {"MUSTER_TORCH": "gloo", "OMP_NUM_THREADS": "1"})
    (ended,) = job.wait()
    assert ended.code == 0, ended
    assert "in gloo's place" in ended.err
    sizes = ["--world-size", "8", "--tp", "2", "--ep", "4", "--etp", "1", "--sequence", "0.15", "--format", "json"]
    said = subprocess.run([sys.executable, "-m", "muster", "groups", *sizes], check=True, stdout=subprocess.PIPE, timeout=60)
    wanted = [(group["name"], group["ranks"]) for group in json.loads(said.stdout)["new_groups"]]
    for rank in range(8):
        made = json.loads((tmp_path / f"rank{rank}.json").read_text())
        mine = [list(group) for group in wanted if rank in group[1]]
        assert made and sorted(made) == sorted(mine), rank
