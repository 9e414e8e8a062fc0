"""Ranks that are processes: how they join, and what happens when one of them does not go on."""

import json
import os
import re
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


@pytest.mark.parametrize(
    "elsewhere",
    [
        "time.sleep(8)",
        # A call in C that keeps the GIL, until there is nobody who could write.
        "ctypes.PyDLL(None).read(subprocess.Popen(['sleep', '8'], stdout=subprocess.PIPE).stdout.fileno(), bytes(8), 8)",
    ],
)
def test_a_rank_that_is_elsewhere_is_named_with_its_last_call_and_its_python_stack(ranks, elsewhere):
    program = JOIN + textwrap.dedent(
        f"""
        import ctypes, subprocess, time
        def load_batch():
            {elsewhere}
        def epoch():
            load_batch()
        group.barrier()
        group.deadline = 2.0
        try:
            if RANK == 1:
                epoch()
            group.barrier()
        except muster.CommError as error:
            print(error.verdict.line)
        """
    )
    # A verdict waits 200 ms for the stack, in which a crowded host may run nothing.
    for _ in range(3):
        line = ranks(2, program)[0].out
        if "rank 1 is in " in line:
            break
    assert "VERDICT NOT_JOINED who=rank 1" in line, line
    assert re.search(r"last finished barrier #1 on world at \S*program.py:11 ", line), line
    assert "rank 1 is in load_batch (program.py:8) < epoch (program.py:10) < <module> (program.py:15) " in line, line


def test_a_stack_is_told_by_python_on_every_thread_and_signals_of_the_program_are_left_alone(ranks):
    program = """
import signal, threading, time
last = signal.SIGRTMAX - 11
signal.signal(last, lambda *_: print("a signal of the program"))
""" + JOIN + textwrap.dedent(
        """
        assert signal.getsignal(last) is not signal.SIG_DFL
        group.barrier()
        group.deadline = 2.0
        def on_a_thread():
            # The first to use this group.
            other = world.group("other", [0, 1])
            other.deadline = 2.0
            other.barrier()
            if RANK == 1:
                time.sleep(8)
            try:
                other.barrier()
            except muster.CommError as error:
                print(error.verdict.line)
        thread = threading.Thread(target=on_a_thread)
        thread.start()
        thread.join()
        """
    )
    for _ in range(3):
        ended = ranks(2, program)
        assert "a signal" not in ended[0].out + ended[1].out
        if "rank 1 is in " in ended[0].out:
            break
    assert "rank 1 is in on_a_thread (program.py:" in ended[0].out, ended


def test_a_dump_shows_the_python_line_of_the_call(ranks, job, tmp_path):
    program = JOIN + textwrap.dedent(
        """
        import os, subprocess
        group.barrier()
        group.deadline = 100.0
        if RANK == 0:
            other = group.all_gather_object(os.getpid())[1]
            def look():
                return subprocess.run([sys.executable, "-m", "muster", "dump", str(other)], capture_output=True, text=True).stdout
            while '"call": {' not in (seen := look()) or '"seq": 3' not in seen:
                pass
            print(seen)
        else:
            group.all_gather_object(os.getpid())
        group.all_reduce(bytearray(8))
        """
    )
    ended = ranks(2, program)
    assert [one.code for one in ended] == [0, 0], ended
    (rank,) = json.loads(ended[0].out)["ranks"]
    assert rank["groups"][0]["call"]["site"].endswith("program.py:18"), rank


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


# The second one is at work in Python while the interpreter ends.
@pytest.mark.parametrize("sleep", ["time.sleep(200)", "sleep_through_interrupts()"])
def test_ctrl_c_ends_ranks_that_are_threads_and_names_those_that_go_on(job, tmp_path, sleep):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import signal, sys, time, muster
            signal.signal(signal.SIGINT, signal.default_int_handler)
            def sleep_through_interrupts():
                while True:
                    try:
                        time.sleep(0.001)
                    except KeyboardInterrupt:
                        pass
            def rank(world):
                group = world.everyone()
                group.barrier()
                if world.rank == 1:
                    {sleep}
                if world.rank == 0:
                    print("waiting", flush=True)
                group.barrier()
            def again(world):
                return world.everyone().all_gather_object(world.rank)
            try:
                muster.threads(3, rank, deadline=200)
            except KeyboardInterrupt as error:
                print(error, flush=True)
            print(muster.threads(2, again), flush=True)
            raise SystemExit(7)
            """
        )
    )
    process = job.start([sys.executable, str(script)])
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=100)
    said, then = out.splitlines()
    assert re.search(r"rank 1: .*\brank \(program.py:\d+\)$", said), (out, err)
    assert (then, err, process.returncode) == ("[[0, 1], [0, 1]]", "", 7)


def test_ctrl_c_ends_ranks_that_are_threads_and_all_wait(job, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            """
            import signal, sys, time, muster
            signal.signal(signal.SIGINT, signal.default_int_handler)
            def rank(world):
                if world.rank == 0:
                    print("waiting", flush=True)
                    while True:
                        time.sleep(0.01)
                if world.rank == 1:
                    world.everyone().barrier(async_op=True).wait()
                world.everyone().barrier()
            muster.threads(3, rank, deadline=200)
            """
        )
    )
    process = job.start([sys.executable, str(script)])
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=100)
    # What Python says of a program that Ctrl-C ended.
    assert err.splitlines()[-1] == "KeyboardInterrupt" and process.returncode == -signal.SIGINT, err


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
