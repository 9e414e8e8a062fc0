"""The torch.distributed backend, with ranks as torchrun starts them."""

import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from muster import _shim

torch = pytest.importorskip("torch", reason="torch is not installed; the backend of torch.distributed is not tested")
dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

INIT = "import muster.torch\ndist.init_process_group('muster')\nr, n = dist.get_rank(), dist.get_world_size()\n"


def test_the_cache_is_open_to_nobody_else(compiled):
    assert _shim._cache().stat().st_mode & 0o777 == 0o700


def well(ended):
    assert [one.code for one in ended] == [0] * len(ended), ended


EVERY_COLLECTIVE = INIT + textwrap.dedent(
    """
    t = torch.full((3, 2), float(r))
    total = float(sum(range(n)))
    x = t.clone(); dist.all_reduce(x); assert (x == total).all()
    x = t.clone(); w = dist.all_reduce(x, async_op=True); w.wait(); assert (x == total).all()
    x = t.clone().t(); dist.all_reduce(x); assert (x == total).all()
    x = t.clone(); dist.all_reduce(x, dist.ReduceOp.AVG); assert torch.allclose(x, torch.tensor(total / n))
    x = t.clone(); dist.reduce(x, 1, dist.ReduceOp.MAX); assert r != 1 or (x == n - 1).all()
    x = t.clone(); dist.broadcast(x, 1); assert (x == 1).all()
    xs = [torch.zeros(3, 2) for _ in range(n)]
    dist.all_gather(xs, t); assert [int(x[0, 0]) for x in xs] == list(range(n))
    xs = [torch.zeros(k + 1) for k in range(n)]
    dist.all_gather(xs, torch.full((r + 1,), float(r))); assert all((x == k).all() for k, x in enumerate(xs))
    x = torch.zeros(3 * n, 2); dist.all_gather_into_tensor(x, t); assert (x[::3, 0] == torch.arange(n)).all()
    xs = [torch.zeros(3, 2) for _ in range(n)] if r == 0 else None
    dist.gather(t, xs); assert r or [int(x[0, 0]) for x in xs] == list(range(n))
    x = torch.zeros(2)
    dist.scatter(x, [torch.full((2,), float(k)) for k in range(n)] if r == 1 else None, src=1); assert (x == r).all()
    x = torch.zeros(2)
    dist.reduce_scatter(x, [torch.full((2,), float(k)) for k in range(n)]); assert (x == r * n).all()
    x = torch.zeros(2); dist.reduce_scatter_tensor(x, torch.arange(2.0 * n)); assert x[0] == 2 * r * n
    x = torch.zeros(n); dist.all_to_all_single(x, torch.arange(float(n)) + 10 * r)
    assert (x == torch.arange(n) * 10 + r).all()
    sizes = [k + 1 for k in range(n)]
    x = torch.zeros(n * (r + 1)); dist.all_to_all_single(x, torch.full((sum(sizes),), float(r)), [r + 1] * n, sizes)
    assert (x == torch.arange(n).repeat_interleave(r + 1)).all()
    xs = [torch.zeros(2) for _ in range(n)]
    dist.all_to_all(xs, [torch.full((2,), float(10 * r + k)) for k in range(n)])
    assert [int(x[0]) for x in xs] == [10 * k + r for k in range(n)]
    dist.barrier()
    try:
        dist.monitored_barrier()
    except ValueError as error:
        # Older versions of torch ask for the name "gloo" first.
        assert "only implemented for GLOO" in str(error) and torch.__version__ < "2.15", error
    for dtype in (torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.complex64, torch.bool):
        x = torch.ones(5, dtype=dtype); dist.all_reduce(x); assert (x == (1 if dtype == torch.bool else n)).all(), dtype
    x = torch.zeros(0); dist.all_reduce(x)
    x = torch.tensor([1 << r, 5]); dist.all_reduce(x, dist.ReduceOp.BOR); assert x.tolist() == [(1 << n) - 1, 5]
    x = torch.tensor([6 + r, 5], dtype=torch.int16); dist.reduce(x, 0, dist.ReduceOp.BAND); assert r or x.tolist() == [6 & 7 & 8, 5]
    x = torch.zeros(1, dtype=torch.uint8); dist.reduce_scatter_tensor(x, torch.full((n,), 1 << r, dtype=torch.uint8), dist.ReduceOp.BXOR)
    assert x.item() == (1 << n) - 1
    x = torch.tensor([r == 0, True]); dist.all_reduce(x, dist.ReduceOp.BXOR); assert x.tolist() == [True, n % 2 == 1]
    x = torch.sparse_coo_tensor([[r, n]], [1.0, 2.0], (n + 1,)); dist.all_reduce(x)
    assert x.to_dense().tolist() == [1.0] * n + [2.0 * n]
    xs = [None] * n; dist.all_gather_object(xs, {"r": r}); assert xs[n - 1] == {"r": n - 1}
    xs = [None] * n if r == 0 else None; dist.gather_object(r, xs); assert r or xs == list(range(n))
    xs = ["a", 1] if r == 0 else [None, None]; dist.broadcast_object_list(xs); assert xs == ["a", 1]
    if r == 0:
        dist.send(t, 1, tag=5); dist.send(t + 1, 1, tag=6)
    if r == 1:
        x, y = torch.zeros(3, 2), torch.zeros(3, 2)
        dist.recv(y, 0, tag=6); dist.recv(x, 0, tag=5); assert (x == 0).all() and (y == 1).all()
    big, got = torch.full((1 << 18,), float(r)), torch.zeros(1 << 18)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, big, (r + 1) % n), dist.P2POp(dist.irecv, got, (r - 1) % n)])
    [w.wait() for w in works]; assert (got == (r - 1) % n).all()
    a, b = dist.isend(big, (r + 1) % n), dist.irecv(got, (r + 1) % n)
    dist.send(big, (r - 1) % n); c = torch.zeros(1 << 18); dist.recv(c, (r - 1) % n); a.wait(); b.wait()
    fut = dist.distributed_c10d._get_default_group().allreduce([torch.ones(2)]).get_future()
    assert (fut.then(lambda f: f.value()[0] * 2).wait() == 2 * n).all()
    half = dist.new_group(list(range(n - 1)))
    if r < n - 1:
        x = torch.ones(2); dist.all_reduce(x, group=half); assert (x == n - 1).all()
    dist.destroy_process_group()
    dist.init_process_group("muster"); dist.barrier(); dist.destroy_process_group()
    """
)


def test_every_collective(torch_ranks):
    well(torch_ranks(3, EVERY_COLLECTIVE))


@pytest.fixture
def no_compiler(tmp_path):
    """What hides the compiler, and what was compiled before, from a rank."""
    return {"PATH": str(tmp_path / "none"), "CXX": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_every_collective_without_a_compiler(torch_ranks, no_compiler):
    ended = torch_ranks(3, EVERY_COLLECTIVE, no_compiler)
    if takes_python_backends():
        well(ended)
        assert all(one.err.count("the backend in Python takes its place") == 1 for one in ended), ended
    else:
        assert all(one.code == 1 and "there is no C++ compiler" in one.err for one in ended), ended
        assert all("torch 2.14 and newer works without a compiler" in one.err for one in ended), ended


def takes_python_backends():
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)


def test_training_and_verdicts_without_a_compiler(torch_ranks, no_compiler):
    if not takes_python_backends():
        pytest.skip("this torch takes no backend that is a Python class")
    program = INIT + textwrap.dedent(
        """
        import os, signal
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        model(torch.ones(2, 4) * r).sum().backward()
        grad = model.module.weight.grad.clone(); want = grad.clone()
        dist.broadcast(want, 0); assert torch.equal(grad, want)
        works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(50)]
        assert [work.get_future().wait()[0].tolist() for work in works] == [[n] * 3] * 50
        group = dist.new_group(); dist.barrier(group); dist.destroy_process_group(group)
        from muster import _work
        assert {code.co_filename for code in _work._codes.values()} == {__file__}
        # It still waits when the process ends.
        left = dist.irecv(torch.zeros(1), (r + 1) % n, tag=7)
        dist.barrier()
        if r == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.gather_object({"r": r}, [None] * n if r == 0 else None)
            dist.barrier()
        except dist.DistBackendError as error:
            print([line for line in str(error).splitlines() if line.startswith("VERDICT")][0])
        """
    )
    ended = torch_ranks(3, program, no_compiler)
    assert [one.code for one in ended] == [0, -signal.SIGKILL, 0], ended
    assert ended[0].out == ended[2].out and ended[0].out.startswith("VERDICT PEER_DEAD who=rank 1"), ended


def test_what_is_not_carried_is_named(torch_ranks):
    program = INIT + textwrap.dedent(
        """
        import pytest
        with pytest.raises(NotImplementedError, match="bitwise reductions of Float"):
            dist.reduce(torch.ones(2), 0, dist.ReduceOp.BXOR)
        dist.barrier(); dist.destroy_process_group()
        """
    )
    well(torch_ranks(2, program))


def test_messages_from_any_source(torch_ranks):
    # Also while a receive from one rank is under way, and of a tag that nobody else uses.
    program = INIT + textwrap.dedent(
        """
        big = 1 << 17
        if r == 0:
            early = torch.zeros(1); named = dist.irecv(early, 1, tag=3)
            seen = {k: 0 for k in range(1, n)}
            for _ in range(3 * (n - 1) - 1):
                x = torch.zeros(big); sender = dist.recv(x)
                assert (x == 10 * sender + seen[sender]).all(); seen[sender] += 1
            last = [k for k in seen if seen[k] < 3]
            x = torch.zeros(big); dist.recv(x, last[0]); assert (x == 10 * last[0] + 2).all()
            x = torch.zeros(2, 2).t(); work = dist.irecv(x, tag=9); dist.barrier(); work.wait()
            assert (x == 5).all() and work._source_rank() == n - 1
            named.wait(); assert early.item() == 1
        else:
            for k in range(3):
                dist.send(torch.full((big,), float(10 * r + k)), 0)
            dist.barrier()
            if r == n - 1:
                dist.send(torch.full((2, 2), 5.0), 0, tag=9)
            if r == 1:
                dist.send(torch.ones(1), 0, tag=3)
        half = dist.new_group([0, n - 1])
        if r == 0:
            x = torch.zeros(1); assert dist.recv(x, group=half) == n - 1
        if r == n - 1:
            dist.send(torch.ones(1), 0, group=half)
        dist.barrier(); dist.destroy_process_group()
        """
    )
    well(torch_ranks(3, program))


def test_a_message_from_any_source_that_never_comes_names_who_could_send_it(torch_ranks):
    program = "from datetime import timedelta\n" + INIT + textwrap.dedent(
        """
        import time
        group = dist.new_group(timeout=timedelta(seconds=2))
        if r == 0:
            try:
                dist.recv(torch.zeros(1), group=group)
            except dist.DistBackendError as error:
                print(error)
        else:
            time.sleep(6)
        dist.barrier(); dist.destroy_process_group()
        """
    )
    ended = torch_ranks(3, program)
    well(ended)
    assert re.search("VERDICT NOT_JOINED who=rank 1 .*rank 2 ", ended[0].out), ended
    assert any(re.search(r"SUSPECT .* recv_any .*program\.py:", one.err) for one in ended), ended


def test_split_groups_and_groups_that_are_aborted_and_made_again(torch_ranks):
    program = INIT + textwrap.dedent(
        """
        import threading
        if hasattr(dist, "split_group"):
            # torch asks for a device that the default group is bound to, before 2.12.
            pg = dist.distributed_c10d._get_default_group()
            backend = pg._get_backend(torch.device("cpu"))
            assert getattr(backend, "supports_splitting", True)
            try:
                half = dist.split_group(split_ranks=[[0, 2], [1, 3]])
            except (RuntimeError, TypeError) as error:
                assert torch.__version__ < "2.14", error
            else:
                x = torch.ones(1) * r; dist.all_reduce(x, group=half); assert x.item() == [2, 4][r % 2]
                rest = dist.split_group(split_ranks=[[3, 0]])
                if r in (0, 3):
                    assert dist.get_rank(rest) == [1, None, None, 0][r]
                    x = torch.tensor([float(r)]); dist.broadcast(x, 3, group=rest); assert x.item() == 3
        # A thread waits in a group that is aborted, and the default group goes on.
        group = dist.new_group()
        backend = group._get_backend(torch.device("cpu"))
        # torch 2.6 has no abort().
        assert hasattr(backend, "abort") or torch.__version__ < "2.7"
        if r == 0 and hasattr(backend, "abort"):
            said = []
            def wait():
                try:
                    dist.barrier(group)
                except dist.DistBackendError as error:
                    said.append(str(error))
            thread = threading.Thread(target=wait); thread.start()
            import time; time.sleep(0.5)
            backend.abort(); thread.join()
            assert "abort() was called" in said[0], said
        dist.barrier()
        # Threads of their own with groups of their own.
        groups = [dist.new_group() for _ in range(3)]
        def work(group, wrong):
            for k in range(50):
                x = torch.full((k + 1,), float(r)); dist.all_reduce(x, group=group)
                if not (x == n * (n - 1) / 2).all(): wrong.append(k)
        wrong = []
        threads = [threading.Thread(target=work, args=(one, wrong)) for one in groups]
        [t.start() for t in threads]; [t.join() for t in threads]; assert not wrong
        for _ in range(3):
            dist.destroy_process_group(); dist.init_process_group("muster"); dist.barrier()
        dist.destroy_process_group()
        """
    )
    well(torch_ranks(4, program))


def test_calls_and_groups_leave_nothing_behind(torch_ranks):
    program = INIT + textwrap.dedent(
        """
        import gc, os
        def memory():
            gc.collect()
            with open("/proc/self/smaps_rollup") as file:
                kib = next(int(line.split()[1]) for line in file if line.startswith("Pss_Anon:"))
            return kib, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        def calls(rounds):
            x, all_x = torch.ones(4), torch.ones(4 * n)
            for _ in range(rounds):
                dist.all_reduce(x, dist.ReduceOp.MAX); dist.all_gather_into_tensor(all_x, x)
                dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True).wait()
                dist.all_gather_object([None] * n, r)
                if r: dist.send(x, 0)
                else: dist.recv(x)
        def groups(rounds):
            for _ in range(rounds):
                group = dist.new_group(); x = torch.ones(4); dist.all_reduce(x, group=group)
                dist.all_reduce(x, group=group, async_op=True).wait()
                if r: dist.send(x, 0, group=group, tag=1)
                else: dist.recv(x, 1, group=group, tag=1)
                dist.destroy_process_group(group)
        calls(1000); groups(60); before = memory()
        calls(4000); between = memory(); groups(200); dist.barrier(); after = memory()
        print(before, between, after)
        # Less than a work a call, 8 KiB a group, and a thread or a descriptor of none.
        assert between[0] - before[0] < 4000, (before, between)
        assert after[0] - between[0] < 200 * 8, (between, after)
        assert after[1] <= before[1] + 4 and after[2] <= before[2] + 4, (before, after)
        dist.destroy_process_group()
        """
    )
    well(torch_ranks(2, program))


def test_each_device_of_a_group_keeps_its_backend(torch_ranks):
    program = textwrap.dedent(
        """
        import muster.torch
        from torch.testing._internal.distributed.fake_pg import FakeStore  # registers "fake"
        made = []
        def other(store, rank, size, timeout):
            from torch._C._distributed_c10d import FakeProcessGroup
            make = getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)
            made.append(make(rank, size))
            return made[-1]
        dist.Backend.register_backend("other", other, devices=["meta"])
        dist.init_process_group("cpu:muster,meta:other")
        group = dist.distributed_c10d._get_default_group()
        assert group._get_backend(torch.device("cpu")).name() == "muster"
        assert group._get_backend(torch.device("meta")) is not group._get_backend(torch.device("cpu"))
        x = torch.ones(2); dist.all_reduce(x); assert (x == dist.get_world_size()).all()
        dist.destroy_process_group()
        """
    )
    well(torch_ranks(2, program))


def test_in_gloos_place_for_an_unchanged_program(torch_ranks):
    program = textwrap.dedent(
        """
        dist.init_process_group("gloo")
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        assert type(backend).__name__ != "ProcessGroupGloo"
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
        grad = model.module.weight.grad.clone(); want = grad.clone()
        dist.broadcast(want, 0); assert torch.equal(grad, want)
        dist.destroy_process_group()
        """
    )
    ended = torch_ranks(2, program, {"MUSTER_TORCH": "gloo"})
    well(ended)
    assert [one.err.count("in gloo's place") for one in ended] == [1, 0]


def test_a_program_that_does_not_use_it_loads_nothing_of_it():
    program = "import sys, torch\nprint(sorted(name for name in sys.modules if name.startswith(('muster', '_muster'))))"
    env = {name: value for name, value in os.environ.items() if name != "MUSTER_TORCH"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, env=env)
    assert done.stdout == "['muster_autoload']\n", done


def test_a_wish_that_is_none_is_refused():
    env = {**os.environ, "MUSTER_TORCH": "glue"}
    done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 1 and "MUSTER_TORCH is 'glue'; it may be 'gloo', or not set" in done.stderr, done


def test_objects_of_64_mib(torch_ranks):
    program = INIT + textwrap.dedent(
        """
        import pickle
        thing = {"rank": r, "data": torch.full((1 << 24,), r, dtype=torch.int32)}
        def check(thing, rank):
            assert thing["rank"] == rank and thing["data"].shape == (1 << 24,) and (thing["data"] == rank).all()
        xs = [None] * n; dist.all_gather_object(xs, thing)
        for k, x in enumerate(xs): check(x, k)
        xs = [None] * n if r == 1 else None; dist.gather_object(thing, xs, 1)
        for k, x in enumerate(xs or []): check(x, k)
        xs = [thing, "small"] if r == 1 else [None, None]; dist.broadcast_object_list(xs, 1)
        check(xs[0], 1); assert xs[1] == "small"
        dist.destroy_process_group()
        """
    )
    well(torch_ranks(2, program))


def test_a_rank_killed_in_gather_object_is_named_on_all_others_in_one_line(torch_ranks):
    program = INIT + textwrap.dedent(
        """
        import os, signal
        dist.barrier()
        if r == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.gather_object({"r": r}, [None] * n if r == 0 else None)
            dist.barrier()
        except dist.DistBackendError as error:
            print([line for line in str(error).splitlines() if line.startswith("VERDICT")][0])
        """
    )
    ended = torch_ranks(3, program)
    assert ended[1].code == -signal.SIGKILL
    lines = {ended[0].out, ended[2].out}
    assert len(lines) == 1, ended
    assert lines.pop().startswith("VERDICT PEER_DEAD who=rank 1"), ended


def test_a_rank_that_does_not_come_is_named_at_the_groups_timeout(torch_ranks):
    program = "from datetime import timedelta\n" + INIT + textwrap.dedent(
        """
        import time
        group = dist.new_group(timeout=timedelta(seconds=2))
        for _ in range(2):
            dist.all_reduce(torch.ones(1), group=group)
            dist.barrier(group)
        if r == 1:
            time.sleep(8)
        else:
            try:
                dist.all_gather_object([None] * n, r, group=group)
            except dist.DistBackendError as error:
                print(error)
        dist.barrier(); dist.destroy_process_group()
        """
    )
    ended = torch_ranks(2, program)
    well(ended)
    assert "VERDICT NOT_JOINED who=rank 1" in ended[0].out, ended
    # Each call has its own line, though one function makes them all.
    lines = list(enumerate(program.splitlines(), 3))
    barrier, gather = (next(at for at, line in lines if call in line) for call in ("barrier(g", "all_gather_o"))
    assert re.search(rf"last finished barrier #4 on 1 at \S*program\.py:{barrier} ", ended[0].out), ended
    assert re.search(rf"all_gather #5 on 1 .*program\.py:{gather}\)", ended[0].err), ended


def test_torchrun_starts_it(job, tmp_path, compiled):
    # A file for each rank: torchrun lets both ranks write to one pipe, and their lines mix.
    script = tmp_path / "program.py"
    script.write_text(
        "import pathlib, torch, torch.distributed as dist\n"
        + INIT
        + "dist.barrier(); pathlib.Path(__file__).with_name(f'rank{r}').write_text(f'{r} of {n}')\n"
    )
    env = {"OMP_NUM_THREADS": "1", **os.environ}
    job.start([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)], env)
    (ended,) = job.wait()
    assert ended.code == 0, ended
    assert [(tmp_path / f"rank{rank}").read_text() for rank in range(2)] == ["0 of 2", "1 of 2"]
