"""The stubs of the extension module are those of the module, and the package and programs on it are typed."""

import subprocess
import sys

import pytest

import muster

pytest.importorskip("mypy")

PROGRAM = """
from typing import Dict, List, Optional
import muster

def rank(world: muster.World) -> int:
    group: muster.Communicator = world.everyone()
    groups: Dict[str, muster.Communicator] = world.groups(muster.layout(world.size, tp=2))
    members: List[int] = groups["tp"].members
    group.all_reduce(world.alloc((2, 3), "float32"), op="max")
    try:
        group.barrier()
    except muster.PeerDead as error:
        verdict: Optional[muster.Verdict] = error.verdict
    return len(members)

found: List[int] = muster.threads(4, rank)
reveal_type(muster.init)
wrong: str = muster.threads(4, rank)
"""


def mypy(*arguments, module="mypy"):
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


def test_the_stub_is_that_of_the_module():
    code, said = mypy("muster._muster", module="mypy.stubtest")
    assert code == 0, said


def test_the_package_is_typed():
    names = ["muster", "muster.errors", "muster._binary", "muster._communicator", "muster._memory"]
    code, said = mypy("--strict", "--cache-dir=/dev/null", *(word for name in names for word in ("-m", name)))
    assert code == 0, said


def test_a_program_sees_the_types(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    code, said = mypy("--strict", "--cache-dir=/dev/null", str(program))
    errors = [line for line in said.splitlines() if " error: " in line]
    assert code == 1 and len(errors) == 1 and "List[int]" in errors[0].replace("list", "List"), said
    assert "muster.World" in said


def test_all_names_are_there():
    assert [name for name in muster.__all__ if not hasattr(muster, name)] == []
