"""Collectives among ranks that are threads: buffers of all kinds, arguments, objects, errors."""

import array
import pickle
import subprocess
import sys

import pytest

import muster

np = pytest.importorskip("numpy")

N = 3


def everywhere(body, count=N):
    return muster.threads(count, lambda world: body(world.everyone()), deadline=30)


def test_every_collective_gives_what_it_says():
    def rank(group):
        me, n = group.rank, group.size
        mine = np.arange(4, dtype=np.float32) + me
        total = sum(np.arange(4) + r for r in range(n))
        out = np.zeros(4, np.float32)
        group.all_reduce(mine, out)
        assert (out == total).all()
        group.reduce(mine, out if me == 1 else None, root=1, op="max")
        if me == 1:
            assert (out == np.arange(4) + n - 1).all()
        group.broadcast(out, root=1)
        assert (out == np.arange(4) + n - 1).all()
        all_ = np.zeros((n, 4), np.float32)
        group.all_gather(mine, all_)
        assert (all_ == [np.arange(4) + r for r in range(n)]).all()
        all_ = np.zeros((n, 4), np.float32) if me == 0 else None
        group.gather(mine, all_)
        if me == 0:
            assert (all_ == [np.arange(4) + r for r in range(n)]).all()
        block = np.zeros(4, np.float32)
        group.scatter(all_, block)
        assert (block == mine).all()
        every = np.arange(n * 2, dtype=np.int64) + 10 * me
        block = np.zeros(2, np.int64)
        group.reduce_scatter(every, block)
        assert (block == sum(np.arange(n * 2) + 10 * r for r in range(n))[2 * me : 2 * me + 2]).all()
        out = np.zeros(n * 2, np.int64)
        group.all_to_all(every, out)
        assert (out.reshape(n, 2) == [np.arange(2) + 2 * me + 10 * r for r in range(n)]).all()
        group.barrier()

    everywhere(rank)


def test_prefix_reductions():
    def rank(group):
        me = group.rank
        mine = np.arange(3, dtype=np.int64) + 10 * me
        upto, before = np.zeros(3, np.int64), np.ones(3, np.int64)
        group.scan(mine, upto)
        assert (upto == sum(np.arange(3) + 10 * r for r in range(me + 1))).all()
        group.exclusive_scan(mine, before)
        assert (before == upto - mine).all()
        group.scan(mine, upto, "max", async_op=True).wait()
        assert (upto == np.arange(3) + 10 * me).all()
        given = mine.copy()
        group.exclusive_scan(mine)
        assert (mine == before).all()
        group.scan(given)
        assert (given == before + np.arange(3) + 10 * me).all()
        with pytest.raises(muster.InvalidArgument, match="avg"):
            group.exclusive_scan(upto, op="avg")

    everywhere(rank)


def test_uneven_blocks():
    def rank(group):
        me, n = group.rank, group.size
        counts = [r + 1 for r in range(n)]
        mine = np.full(me + 1, me, np.int32)
        want = np.concatenate([np.full(r + 1, r, np.int32) for r in range(n)])
        all_ = np.zeros(sum(counts), np.int32)
        group.all_gather_v(mine, all_, counts)
        assert (all_ == want).all()
        all_[:] = 0
        group.gather_v(mine, all_ if me == 2 else None, counts, root=2)
        assert me != 2 or (all_ == want).all()
        block = np.zeros(me + 1, np.int32)
        group.scatter_v(want if me == 1 else None, block, counts, root=1)
        assert (block == mine).all()
        group.reduce_scatter_v(want, block, counts)
        assert (block == mine * n).all()
        send = np.repeat(np.arange(n), counts).astype(np.int32) + 100 * me
        recv = np.zeros(n * (me + 1), np.int32)
        group.all_to_all_v(send, counts, recv, [me + 1] * n)
        assert (recv == np.concatenate([np.full(me + 1, me + 100 * r) for r in range(n)])).all()

    everywhere(rank)


def test_in_place_and_asynchronous():
    def rank(group):
        me, n = group.rank, group.size
        data = np.full(1000, me, np.float64)
        work = group.all_reduce(data, async_op=True)
        assert work.wait(30) is None
        assert work.is_done()
        assert (data == sum(range(n))).all()
        all_ = np.zeros((n, 2), np.uint8)
        all_[me] = me
        group.all_gather(None, all_)
        assert (all_[:, 0] == range(n)).all()
        data = np.arange(n, dtype=np.int16)
        group.reduce_scatter(data)
        assert data[me] == n * me
        data = np.full(n, me, np.uint16)
        group.all_to_all(data)
        assert (data == range(n)).all()
        # A work that nobody waits for is carried out all the same, on memory that is still there.
        group.all_reduce(np.ones(10), async_op=True)
        seen = group.all_gather_object(me, async_op=True)
        assert seen.wait() == list(range(n))
        group.barrier()

    everywhere(rank)


def test_anything_with_memory():
    def rank(group):
        n = group.size
        for buffer in (
            array.array("d", [1.0, 2.0]),
            bytearray([1, 2]),
            memoryview(bytearray([1, 2])),
            memoryview(array.array("i", [0, 1, 2]))[1:],
            np.array([1, 2], np.float16),
            np.zeros((4, 4), np.int8)[1:3, :],
        ):
            before = memoryview(buffer).cast("B") if isinstance(buffer, np.ndarray) else buffer
            want = [n * one for one in np.asarray(buffer).reshape(-1).tolist()]
            del before
            group.all_reduce(buffer)
            assert np.asarray(buffer).reshape(-1).tolist() == want
        # It is let go of afterwards.
        data = bytearray(8)
        group.all_reduce(data)
        data.extend(b"more")

    everywhere(rank)


def test_messages():
    def rank(group):
        me, n = group.rank, group.size
        data, got = np.full(5, me), np.zeros(5, int)
        group.batch_send_recv([("send", data, (me + 1) % n), ("recv", got, (me - 1) % n)])
        assert (got == (me - 1) % n).all()
        if me == 0:
            group.send(data, 1)
        if me == 1:
            group.recv(got, 0)
            assert (got == 0).all()
        group.barrier()

    everywhere(rank)


def test_objects():
    def rank(group):
        me, n = group.rank, group.size
        thing = {"rank": me, "array": np.arange(me)}
        seen = group.all_gather_object(thing)
        assert [one["rank"] for one in seen] == list(range(n))
        gathered = group.gather_object(me, root=1)
        assert gathered == (list(range(n)) if me == 1 else None)
        assert group.broadcast_object("hello" if me == 2 else None, root=2) == "hello"
        assert group.scatter_object([r * r for r in range(n)] if me == 0 else None) == me * me

    everywhere(rank)


@pytest.mark.parametrize(
    "error, word, call",
    [
        (TypeError, "sendbuf is list", lambda g: g.all_reduce([1, 2])),
        (TypeError, "sendbuf holds elements of format .Zd", lambda g: g.all_reduce(np.zeros(2, complex))),
        (TypeError, "format .>", lambda g: g.all_reduce(np.zeros(2, ">f8"))),
        (TypeError, "recvbuf holds f32, and sendbuf f64", lambda g: g.all_reduce(np.zeros(2), np.zeros(2, "f"))),
        (TypeError, "truth values", lambda g: g.all_reduce(np.zeros(2, bool))),
        (ValueError, "sendbuf is not contiguous", lambda g: g.all_reduce(np.zeros((4, 4))[:, 1])),
        (ValueError, "sendbuf is read-only", lambda g: g.all_reduce(b"bytes")),
        (ValueError, "recvbuf", lambda g: g.all_gather(np.zeros(2), np.zeros(3))),
        (ValueError, "needs recvbuf", lambda g: g.all_gather(np.zeros(2), None)),
        (ValueError, "root", lambda g: g.broadcast(np.zeros(2), root=7)),
        (ValueError, "unknown reduction", lambda g: g.all_reduce(np.zeros(2), op="summ")),
        (ValueError, "a 'send' or a 'recv'", lambda g: g.batch_send_recv([("sent", np.zeros(2), 0)])),
    ],
)
def test_wrong_arguments_are_refused_by_name_and_the_group_stays_usable(error, word, call):
    def rank(group):
        with pytest.raises(error, match=word):
            call(group)
        assert group.all_gather_object(1) == [1, 1]

    everywhere(rank, 2)


def test_ranks_that_differ_get_the_same_verdict_which_can_be_pickled():
    def rank(group):
        try:
            group.all_reduce(np.zeros(2 + group.rank))
        except muster.Mismatch as error:
            return error

    errors = everywhere(rank, 2)
    lines = {error.verdict.line for error in errors}
    assert len(lines) == 1
    error = pickle.loads(pickle.dumps(errors[1]))
    assert type(error) is muster.Mismatch
    assert error.verdict == errors[1].verdict
    assert (error.collective, error.group, error.rank) == ("all_reduce", "world", 1)
    assert error.verdict.line in str(error)
    assert "test_threads.py" in error.verdict.line


def test_an_exception_of_a_rank_ends_the_others_and_is_raised():
    def rank(world):
        if world.rank == 1:
            raise KeyError("mine")
        world.everyone().barrier()

    with pytest.raises(KeyError, match="mine"):
        muster.threads(3, rank)


def test_cancel_ends_the_call_of_this_rank():
    def rank(world):
        group = world.everyone()
        if world.rank == 0:
            group.cancel("no more")
            with pytest.raises(muster.Cancelled):
                group.barrier()

    muster.threads(2, rank)


def test_layouts_are_those_of_the_tool():
    layout = muster.layout(8, tp=2, ep=4)
    assert layout.sizes["edp"] == 1
    assert layout.group_of("tp", 5) == [4, 5]
    assert muster.preset("relax-4")[0][0] == "train"
    assert muster.matrix("vllm0.18:tp2dp2").groups("mc2") == [[0, 1, 2, 3]]
    assert muster.matrix("tp2@4").kinds == muster.GROUP_KINDS
    with pytest.raises(ValueError, match='unknown kind of group "cp"; known: world, tp'):
        muster.matrix("vllm:tp2").groups("cp")
    with pytest.raises(ValueError, match="tp=3 does not divide"):
        muster.layout(8, tp=3)

    def rank(world):
        assert world.groups(muster.matrix("vllm:tp2dp2"))["dp"].size == 2
        groups = world.groups(muster.layout(4, tp=2))
        return groups["tp"].members, groups["dp"].all_gather_object(world.rank)

    assert muster.threads(4, rank)[3] == ([2, 3], [1, 3])


def test_the_program_of_the_wheel_runs():
    done = subprocess.run(
        [sys.executable, "-m", "muster", "groups", "--world-size", "4", "--tp", "2"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert "TP=2" in done.stdout


def test_the_examples_of_the_documentation_run():
    import doctest
    import importlib

    for name in ("muster", "muster._communicator"):
        assert doctest.testmod(importlib.import_module(name)).failed == 0
