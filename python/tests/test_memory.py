"""Memory: of the region, of objects with `__dlpack__` only, and of large objects, none of it copied without need."""

import gc
import subprocess
import sys

import pytest

import muster

np = pytest.importorskip("numpy")


def everywhere(body, count=2):
    return muster.threads(count, lambda world: body(world, world.everyone()), deadline=60)


class OnlyDlpack:
    """Memory that is to be had by DLPack only: that of an array."""

    def __init__(self, array, device=(1, 0), is_old=False):
        self.array, self.device, self.is_old = array, device, is_old

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **how):
        if self.is_old and how:
            raise TypeError("unexpected keyword argument")
        return self.array.__dlpack__(**how)


@pytest.mark.parametrize("dtype", ["float32", np.float64, np.int8, "uint16", bool])
def test_memory_of_the_region_is_an_array_of_zeroes(dtype):
    def rank(world, group):
        data = world.alloc((3, 5), dtype)
        assert (type(data), data.shape, data.dtype) == (np.ndarray, (3, 5), np.dtype(dtype))
        assert not data.any() and data.flags.writeable
        assert world.alloc(7, dtype).shape == (7,)
        assert world.alloc((), dtype).shape == ()
        assert world.alloc((0, 4), dtype).shape == (0, 4)

    everywhere(rank)


def test_calls_on_memory_of_the_region_go_straight():
    def rank(world, group):
        mine, total = world.alloc(1 << 18, "float32"), world.alloc(1 << 18, "float32")
        mine[:] = group.rank + 1
        group.all_reduce(mine, total)
        assert (total == 3).all()
        assert group.last_algorithm == "straight" and group.shares_memory
        # A part of an array is in the region too.
        group.all_reduce(mine[: 1 << 17])
        assert group.last_algorithm == "straight"

    everywhere(rank)


def test_memory_of_the_region_lives_as_long_as_an_array_that_uses_it():
    def rank(world, group):
        data = world.alloc(1 << 16, "int64")
        data[:] = np.arange(1 << 16) + world.rank
        return data[10:20], memoryview(data)

    for number, (part, view) in enumerate(everywhere(rank)):
        gc.collect()
        assert (part == np.arange(10, 20) + number).all()
        assert view[-1] == (1 << 16) - 1 + number
        part[:] = 1


def test_memory_of_the_region_is_free_again_without_its_arrays():
    def rank(world, group):
        # Three times as much as the region has room for, of which nothing is touched.
        for _ in range(6):
            assert world.alloc((1 << 30, 8), "int8").shape == (1 << 30, 8)
        with pytest.raises(MemoryError, match="MUSTER_REGION_BYTES"):
            world.alloc(1 << 50, "int8")

    muster.threads(1, lambda world: rank(world, None))
    everywhere(rank)


@pytest.mark.parametrize(
    "error, word, shape, dtype",
    [
        (TypeError, "dtype is 'nonsense'", 4, "nonsense"),
        (TypeError, "dtype is 'O'; carried are", 4, "O"),
        (TypeError, "dtype is .*complex", 4, np.complex64),
        (TypeError, "order of this machine", 4, ">f8"),
        (TypeError, "shape is 1.5", 1.5, "float32"),
        (TypeError, "shape is 'ab'", "ab", "float32"),
        (ValueError, "no dimension may be negative", (2, -1), "float32"),
    ],
)
def test_wrong_shapes_and_types_are_refused_by_name(error, word, shape, dtype):
    def rank(world, group):
        with pytest.raises(error, match=word):
            world.alloc(shape, dtype)

    everywhere(rank, 1)


def test_without_numpy_the_region_is_a_memoryview():
    program = """
import sys
sys.modules["numpy"] = None
import muster

def rank(world):
    data = world.alloc((2, 3), "float64")
    assert (type(data), data.shape, data.format, data.readonly) == (memoryview, (2, 3), "d", False)
    data[1, 2] = world.rank
    world.everyone().all_reduce(data)
    assert world.alloc(0, "int32").tolist() == []
    return data.tolist()

assert muster.threads(3, rank) == [[[0, 0, 0], [0, 0, 3]]] * 3
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_torch_tensors_in_the_region():
    torch = pytest.importorskip("torch")

    def rank(world, group):
        data = world.alloc((4, 1 << 16), torch.bfloat16)
        assert (data.shape, data.dtype) == ((4, 1 << 16), torch.bfloat16)
        data.fill_(group.rank + 0.5)
        group.all_reduce(data)
        assert (data == 2).all() and group.last_algorithm == "straight"
        assert world.alloc((0, 3), torch.int32).shape == (0, 3)
        with pytest.raises(TypeError, match="torch.complex64"):
            world.alloc(3, torch.complex64)
        with pytest.raises(TypeError, match="sendbuf is a tensor of layout torch.sparse"):
            group.all_reduce(torch.eye(3).to_sparse())

    everywhere(rank)


def test_arrays_of_bfloat16_without_torch():
    ml_dtypes = pytest.importorskip("ml_dtypes")

    def rank(world, group):
        for data in (np.zeros((3, 2), ml_dtypes.bfloat16), world.alloc((3, 2), ml_dtypes.bfloat16)):
            data[:] = group.rank + 0.5
            group.all_reduce(data)
            assert (data.astype(float) == 2).all()
        with pytest.raises(ValueError, match="sendbuf is not contiguous"):
            group.all_reduce(np.zeros((4, 4), ml_dtypes.bfloat16)[:, 1])

    everywhere(rank)


@pytest.mark.parametrize("is_old", [False, True])
def test_memory_by_dlpack_only_is_used_in_place_and_given_back(is_old):
    def rank(world, group):
        for dtype in (np.float32, np.float16, np.int64, np.uint8, np.int16, np.float64):
            data = np.ones((3, 4), dtype)
            before = sys.getrefcount(data)
            group.all_reduce(OnlyDlpack(data, is_old=is_old))
            assert (data == 2).all()
            group.all_reduce(OnlyDlpack(data, is_old=is_old), async_op=True).wait()
            assert (data == 4).all()
            group.barrier()
            assert sys.getrefcount(data) == before
        with pytest.raises(ValueError, match="sendbuf is not contiguous"):
            group.all_reduce(OnlyDlpack(np.ones((4, 4))[:, 1], is_old=is_old))
        with pytest.raises(TypeError, match="sendbuf holds elements of DLPack's type code 5"):
            group.all_reduce(OnlyDlpack(np.ones(4, complex), is_old=is_old))
        with pytest.raises(TypeError, match="truth values"):
            group.all_reduce(OnlyDlpack(np.ones(4, bool), is_old=is_old))

    everywhere(rank)


def test_memory_by_dlpack_that_cannot_be_used_is_refused():
    def rank(world, group):
        data = np.ones(3)
        with pytest.raises(ValueError, match="sendbuf lies on a device of DLPack's type 2"):
            group.all_reduce(OnlyDlpack(data, device=(2, 0)))
        data.flags.writeable = False
        before = sys.getrefcount(data)
        with pytest.raises(ValueError, match="sendbuf is .*read-?only"):
            group.all_reduce(OnlyDlpack(data))
        assert sys.getrefcount(data) == before
        if tuple(map(int, np.__version__.split(".")[:2])) < (2, 1):
            # It cannot say of memory that it is read-only, and does not give it.
            return
        # It can be read.
        total = np.zeros(3)
        group.all_reduce(OnlyDlpack(data), total)
        assert (total == 2).all()

    everywhere(rank)


def test_several_buffers_are_reduced_in_one_call():
    def rank(world, group):
        me = group.rank
        some = [np.full(3, me, np.float32), np.full((2, 2), me + 1, np.float32), np.zeros(0, np.float32)]
        group.all_reduce_coalesced(some)
        assert (some[0] == 1).all() and (some[1] == 3).all()
        group.all_reduce_coalesced(some, "max", async_op=True).wait()
        group.all_reduce_coalesced([])
        with pytest.raises(TypeError, match=r"buffers\[1\] holds f64, and buffers\[0\] f32"):
            group.all_reduce_coalesced([some[0], np.zeros(2)])
        with pytest.raises(ValueError, match=r"buffers\[0\] is read-only"):
            group.all_reduce_coalesced([b"abc"])
        with pytest.raises(TypeError, match=r"buffers\[0\] holds truth values"):
            group.all_reduce_coalesced([np.zeros(2, bool)])
        with pytest.raises(muster.Mismatch):
            group.all_reduce_coalesced(some[: 1 + me])

    everywhere(rank)


def test_large_arrays_in_objects_are_used_where_they_lie():
    def rank(world, group):
        me = group.rank
        fixed = np.arange(20_000) + me
        fixed.flags.writeable = False
        thing = {"rank": me, "large": np.full((300, 400), me + 0.5), "fixed": fixed, "small": np.arange(3), "order": np.ones((200, 300), order="F")}
        for seen in (group.all_gather_object(thing), group.all_gather_object(thing, async_op=True).wait()):
            for number, one in enumerate(seen):
                assert (one["large"] == number + 0.5).all() and (one["fixed"] == np.arange(20_000) + number).all()
                assert (one["small"] == np.arange(3)).all() and one["order"].flags.f_contiguous
                assert one["large"].flags.writeable and not one["fixed"].flags.writeable
                assert one["large"].flags.aligned and not one["large"].flags.owndata
                one["large"][0, 0] = 7
        # What was received stays when all else is gone.
        kept = seen[1]["large"]
        del seen
        gc.collect()
        assert kept[0, 0] == 7 and (kept[1:] == 1.5).all()
        got = group.gather_object(thing, root=1)
        assert (got is None) == (me == 0)
        assert (group.broadcast_object(thing if me == 0 else None)["large"] == 0.5).all()
        each = [np.full(50_000, number) for number in range(2)] if me == 1 else None
        assert (group.scatter_object(each, root=1) == me).all()

    everywhere(rank)


def test_an_object_that_changes_after_an_asynchronous_call_travels_as_it_was():
    def rank(world, group):
        data = np.zeros(100_000)
        work = group.all_gather_object(data, async_op=True)
        data += 1
        first = work.wait()
        assert not first[0].any() and not first[1].any()
        assert work.wait() is first

    everywhere(rank)


def test_what_cannot_be_pickled_or_is_too_large_is_refused_and_the_group_stays_usable():
    def rank(world, group):
        with pytest.raises(Exception, match="pickle"):
            group.all_gather_object(lambda: 0)
        group.set_object_bytes_max(1 << 20)
        with pytest.raises(muster.ResourceError, match="the object of rank 1"):
            group.all_gather_object(np.zeros(group.rank << 20))
        with pytest.raises(muster.CommError):
            group.scatter_object([1] if group.rank == 0 else None)
        assert group.all_gather_object(group.rank) == [0, 1]
        assert group.failure is None

    everywhere(rank)


def test_the_error_that_ended_a_group_can_be_had_again():
    def rank(world, group):
        group.cancel("enough")
        with pytest.raises(muster.Cancelled) as caught:
            group.barrier()
        assert type(group.failure) is muster.Cancelled
        assert str(group.failure) == str(caught.value)

    everywhere(rank, 1)
