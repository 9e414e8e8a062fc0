"""The programs of docs/hangs.md, on the backend `muster`: every rank that lives names the culprit."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

PAGE = (Path(__file__).parents[2] / "docs" / "hangs.md").read_text()
HEAD, *PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.S)

#: What is said of each, and the ranks that raise.
EXPECTED = [
    ("MISMATCH who=rank 2 ", [0, 1, 2, 3]),
    ("DEADLOCK who=rank 0 .*rank 1 ", [0, 1, 2, 3]),
    ("PEER_DEAD who=rank 1 ", [0, 2, 3]),
    ("MISMATCH who=rank 3 ", [0, 1, 2, 3]),
    ("NOT_JOINED who=rank 1 ", [0, 2, 3]),
]


@pytest.mark.parametrize("number", range(len(EXPECTED)))
def test_the_hang_is_named_on_every_rank(number, torch_ranks):
    assert len(PROGRAMS) == len(EXPECTED)
    said, speakers = EXPECTED[number]
    # Without an entry point before torch 2.14.
    ended = torch_ranks(4, "import muster.torch\n" + HEAD + PROGRAMS[number], {"BACKEND": "muster"})
    lines = set()
    for rank in speakers:
        found = re.findall(r"^VERDICT .*", ended[rank].err, re.M)
        assert found and re.match("VERDICT " + said, found[0]), (rank, ended[rank])
        assert "DistBackendError" in ended[rank].err and ended[rank].code == 1, ended[rank]
        lines.update(found)
    assert len(lines) == 1, lines


def test_ranks_that_await_asynchronous_calls_in_another_order_are_a_circle(torch_ranks):
    program = """
a, b = dist.new_group([0, 1]), dist.new_group([0, 1])
for group in (a, b) if r == 0 else (b, a):
    if r < 2:
        dist.all_reduce(torch.ones(4), group=group, async_op=True).wait()
dist.barrier()
"""
    for one in torch_ranks(3, "import muster.torch\n" + HEAD + program, {"BACKEND": "muster"}):
        found = re.findall(r"^VERDICT .*", one.err, re.M)
        assert found and re.match("VERDICT DEADLOCK who=rank 0 .*rank 1 .*confidence=certain", found[0]), one
