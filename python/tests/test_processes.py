"""Ranks that are processes: how they join, and what happens when one of them does not go on."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import free_port

JOIN = "world = muster.init(ENDPOINT, RANK, SIZE, SECRET, deadline=60, bring_up=120)\ngroup = world.everyone()\n"


def test_ranks_meet_where_they_are_told(ranks):
    ended = ranks(3, JOIN + "print(group.all_gather_object(RANK))\n")
    assert [one.code for one in ended] == [0, 0, 0], ended
    assert {one.out for one in ended} == {"[0, 1, 2]\n"}


def test_ranks_are_started_by_muster_run(job, tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import muster\nwith muster.init() as w:\n    print(w.everyone().all_gather_object(w.rank))\n")
    job.start([sys.executable, "-m", "muster", "run", "-n", "2", "--", sys.executable, str(script)])
    (ended,) = job.wait()
    assert ended.code == 0, ended
    assert ended.out.count("[0, 1]") == 2


def test_a_killed_rank_is_named_on_all_others_with_the_line_of_the_call(ranks):
    program = JOIN + textwrap.dedent(
        """
        import os, signal
        group.barrier()
        if RANK == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            group.gather_object({"rank": RANK})
            group.barrier()
        except muster.PeerDead as error:
            print(error.verdict.blamed, error.verdict.line)
        """
    )
    ended = ranks(3, program)
    assert ended[2].code == -signal.SIGKILL
    lines = {one.out for one in ended[:2]}
    assert len(lines) == 1, ended
    line = lines.pop()
    assert line.startswith("(2,) VERDICT PEER_DEAD who=rank 2"), line


def test_a_rank_that_is_elsewhere_is_named_with_the_line_of_its_last_call(ranks):
    program = JOIN + textwrap.dedent(
        """
        import time
        group.barrier()
        group.deadline = 2.0
        try:
            if RANK == 1:
                time.sleep(6)
            group.barrier()
        except muster.CommError as error:
            print(error.verdict.line)
        """
    )
    ended = ranks(2, program)
    assert "VERDICT NOT_JOINED who=rank 1" in ended[0].out, ended
    assert "program.py:" in ended[0].out


@pytest.mark.parametrize("wait", ["group.barrier()", "group.barrier(async_op=True).wait()"])
def test_ctrl_c_ends_a_waiting_call(job, tmp_path, wait):
    script = tmp_path / "program.py"
    # Rank 0 serves the rendezvous, and so it is the other one that waits.
    script.write_text(
        textwrap.dedent(
            f"""
            import signal, sys, muster
            # Whoever runs the tests in the background may ignore it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            world = muster.init("127.0.0.1:" + sys.argv[1], int(sys.argv[2]), 2, "secret", deadline=200)
            group = world.everyone()
            if world.rank == 0:
                input()
            try:
                print("waiting", flush=True)
                {wait}
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            """
        )
    )
    port = str(free_port())
    zero = job.start([sys.executable, str(script), port, "0"], stdin=subprocess.PIPE)
    one = job.start([sys.executable, str(script), port, "1"])
    assert one.stdout.readline() == "waiting\n"
    time.sleep(0.5)
    os.kill(one.pid, signal.SIGINT)
    out, err = one.communicate(timeout=60)
    assert (out, one.returncode) == ("interrupted\n", 0), err
    zero.kill()


def test_a_fork_before_the_first_world_is_fine_and_after_it_is_refused(ranks):
    program = (
        """
import os
pid = os.fork()
if pid == 0:
    os._exit(0 if muster.threads(2, lambda w: w.everyone().all_gather_object(w.rank)) == [[0, 1]] * 2 else 1)
assert os.waitpid(pid, 0)[1] == 0
"""
        + JOIN
        + """
pid = os.fork()
if pid == 0:
    try:
        group.barrier()
    except RuntimeError as error:
        os._exit(7 if "forked" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
group.barrier()
print("well")
"""
    )
    ended = ranks(2, program)
    assert [one.out for one in ended] == ["well\n"] * 2, ended


def test_a_rank_with_an_exception_is_no_orderly_leaver(ranks):
    program = JOIN + textwrap.dedent(
        """
        group.barrier()
        if RANK == 1:
            raise ValueError("mine")
        try:
            group.barrier()
        except muster.CommError as error:
            print(error.cls)
        """
    )
    ended = ranks(2, program)
    assert ended[1].code == 1
    assert ended[0].out == "PEER_DEAD\n", ended


def test_an_environment_without_a_launcher_is_refused_with_what_to_do():
    done = subprocess.run(
        [sys.executable, "-c", "import muster\nmuster.init()"],
        capture_output=True,
        text=True,
        timeout=60,
        env={k: v for k, v in os.environ.items() if "RANK" not in k and "WORLD" not in k},
    )
    assert done.returncode == 1
    assert "LaunchError" in done.stderr
    assert "MUSTER_RANK" in done.stderr
