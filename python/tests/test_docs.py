"""The programs of docs/python.md and of the README run as they stand there."""

import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import free_port

pytest.importorskip("numpy")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def program(word):
    (found,) = [one for one in PROGRAMS if word in one]
    return found


def test_every_program_of_the_page_is_tried_here_or_with_its_library():
    tried = ["muster.threads(4, rank)", "muster.init() as world", "world.alloc", "except muster.CommError"]
    # test_torch.py and test_ray.py try what these show.
    others = ["dist.init_process_group", "muster.ray.register()"]
    assert [len([one for one in PROGRAMS if word in one]) for word in tried + others] == [1] * len(PROGRAMS)


def test_the_first_steps(tmp_path):
    script = tmp_path / "program.py"
    # The example of memory goes on with the names of the first one.
    script.write_text(program("muster.threads(4, rank)") + program("world.alloc"))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert "10.0" in first and "{'rank': 3}" in first
    assert second == program("world.alloc").rsplit("# ", 1)[1].strip()


def test_processes_started_by_muster_run(job, tmp_path):
    script = tmp_path / "program.py"
    body = "    print(tp.members, sorted(groups))\n    group, state = world.everyone(), {}\n"
    error = "".join(f"    {line}\n" for line in program("except muster.CommError").splitlines())
    script.write_text("import muster\n" + program("muster.init() as world") + body + error)
    job.start([sys.executable, "-m", "muster", "run", "-n", "2", "--", sys.executable, str(script)])
    (ended,) = job.wait()
    assert ended.code == 0, ended
    assert ended.out.count("[0, 1] [") == 2, ended


def test_processes_without_a_launcher(job, tmp_path):
    (call,) = set(re.findall(r"`(muster\.init\(\"10\.0\.0\.1:46004\".*?\))`", PAGE))
    script = tmp_path / "program.py"
    call = call.replace("10.0.0.1:46004", f"127.0.0.1:{free_port()}")
    head = "import sys, muster\nrank, world_size, secret = int(sys.argv[1]), 2, sys.argv[2]\n"
    script.write_text(head + f"print({call}.everyone().all_gather_object(rank))\n")
    secret = secrets.token_hex(16)
    for rank in range(2):
        job.start([sys.executable, str(script), str(rank), secret])
    assert [(one.code, one.out) for one in job.wait()] == [(0, "[0, 1]\n")] * 2


def test_the_line_of_the_readme():
    (line,) = re.findall(r"^python -c '(import muster;.*?)'", (ROOT / "README.md").read_text(), re.M)
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str([[0, 1, 2, 3]] * 4), done
