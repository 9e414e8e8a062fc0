"""The communicator: one method a collective.

Common to all methods:

- `sendbuf` and `recvbuf` are anything with memory: numpy arrays, torch CPU tensors, `array.array`, `bytearray`,
  `memoryview`, and what has `__dlpack__`. Nothing is copied. They must be contiguous, and stay untouched until the call
  has ended.
- `root` and `peer` are indices into the group's members. `op` is "sum", "prod", "min", "max" or "avg".
- A call ends at its deadline at the latest, and as soon as a rank that it needs is known to be gone.
- With `async_op=True` a call returns a `Work` at once. Calls on one communicator are carried out in their order.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, List, Optional, Sequence, Tuple

from . import _memory, _muster
from .errors import CommError

#: Anything with memory; see the head of this module.
Buffer = Any


class Work:
    """An asynchronous call. It is carried out whether anybody waits for it or not."""

    def __init__(self, work: _muster.Work, decode: Optional[Callable[[Any], Any]] = None) -> None:
        self._work = work
        self._decode = decode
        self._decoded: List[Any] = []

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end of the call, at most `timeout` seconds; then `TimeoutError`, and the call goes on.

        Returns what the blocking call would return, and raises what it would raise.
        """
        result = self._work.wait(timeout)
        if self._decode is None:
            return result
        if not self._decoded:
            self._decoded.append(self._decode(result))
        return self._decoded[0]

    def is_done(self) -> bool:
        """Whether the call has ended, well or not."""
        return self._work.is_done()


class Communicator:
    """A group of ranks that make collective calls together. Made by `World.group`."""

    def __init__(self, comm: _muster.Communicator) -> None:
        self._comm = comm

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._comm.name

    @property
    def rank(self) -> int:
        """This rank's index in the group."""
        return self._comm.rank

    @property
    def size(self) -> int:
        """The number of members."""
        return self._comm.size

    @property
    def members(self) -> List[int]:
        """The members' world ranks, in the order of the group."""
        return self._comm.members

    @property
    def deadline(self) -> float:
        """How long each call may take, in seconds. The members should agree."""
        return self._comm.deadline

    @deadline.setter
    def deadline(self, seconds: float) -> None:
        self._comm.deadline = seconds

    @property
    def failure(self) -> Optional[CommError]:
        """The error that ended the group, if one did: every later call raises it at once."""
        failed: Optional[CommError] = self._comm.failure
        return failed

    @property
    def shares_memory(self) -> bool:
        """Whether all members share memory: they are on one host."""
        return self._comm.shares_memory

    @property
    def last_algorithm(self) -> Optional[str]:
        """How the last collective went: "straight" where the ranks used each other's buffers, "entry" where the data was so
        little that it rode in the exchange which begins a call, else the name of an algorithm (`muster plan list`)."""
        return self._comm.last_algorithm

    def set_object_bytes_max(self, count: int) -> None:
        """Sets the largest pickled object, in bytes; the same on all ranks. It is 64 MiB unless set."""
        self._comm.set_object_bytes_max(count)

    def all_reduce(self, sendbuf: Buffer, recvbuf: Buffer = None, op: str = "sum", *, async_op: bool = False) -> Any:
        """Every rank gets the reduction of all `sendbuf`; without `recvbuf` in `sendbuf` itself."""
        return self._call("all_reduce", sendbuf, recvbuf, op=op, async_op=async_op)

    def all_reduce_coalesced(self, buffers: Sequence[Buffer], op: str = "sum", *, async_op: bool = False) -> Any:
        """`all_reduce` of each of these buffers in place, in one call: for many small ones, all of one element type."""
        frame = sys._getframe(1)
        result = self._comm.coalesced(list(buffers), op, async_op, frame.f_code, frame.f_lineno)
        return Work(result) if async_op else None

    def reduce(
        self, sendbuf: Buffer, recvbuf: Buffer = None, root: int = 0, op: str = "sum", *, async_op: bool = False
    ) -> Any:
        """The root gets the reduction of all `sendbuf`; without `recvbuf` in its `sendbuf`."""
        return self._call("reduce", sendbuf, recvbuf, op=op, root=root, async_op=async_op)

    def broadcast(self, buffer: Buffer, root: int = 0, *, async_op: bool = False) -> Any:
        """Every rank gets the root's `buffer`."""
        return self._call("broadcast", None, buffer, root=root, async_op=async_op)

    def all_gather(self, sendbuf: Buffer, recvbuf: Buffer, *, async_op: bool = False) -> Any:
        """Every rank gets every rank's block, in rank order. If `sendbuf` is None, this rank's block is in its place in
        `recvbuf` already."""
        return self._call("all_gather", sendbuf, recvbuf, async_op=async_op)

    def all_gather_v(self, sendbuf: Buffer, recvbuf: Buffer, counts: Sequence[int], *, async_op: bool = False) -> Any:
        """`all_gather` of blocks of different lengths; `counts` has the length of each rank's."""
        return self._call("all_gather_v", sendbuf, recvbuf, counts=counts, async_op=async_op)

    def gather(self, sendbuf: Buffer, recvbuf: Buffer = None, root: int = 0, *, async_op: bool = False) -> Any:
        """The root gets every rank's block in `recvbuf`. If the root's `sendbuf` is None, its block is there already."""
        return self._call("gather", sendbuf, recvbuf, root=root, async_op=async_op)

    def gather_v(
        self, sendbuf: Buffer, recvbuf: Buffer, counts: Sequence[int], root: int = 0, *, async_op: bool = False
    ) -> Any:
        """`gather` of blocks of different lengths; `counts` has the length of each rank's, on all ranks."""
        return self._call("gather_v", sendbuf, recvbuf, root=root, counts=counts, async_op=async_op)

    def scatter(self, sendbuf: Buffer, recvbuf: Buffer = None, root: int = 0, *, async_op: bool = False) -> Any:
        """Rank i gets block i of the root's `sendbuf`. The root may leave out `recvbuf`: its block is in `sendbuf`."""
        return self._call("scatter", sendbuf, recvbuf, root=root, async_op=async_op)

    def scatter_v(
        self, sendbuf: Buffer, recvbuf: Buffer, counts: Sequence[int], root: int = 0, *, async_op: bool = False
    ) -> Any:
        """`scatter` of blocks of different lengths; `counts` has the length of each rank's, on all ranks."""
        return self._call("scatter_v", sendbuf, recvbuf, root=root, counts=counts, async_op=async_op)

    def reduce_scatter(
        self, sendbuf: Buffer, recvbuf: Buffer = None, op: str = "sum", *, async_op: bool = False
    ) -> Any:
        """Rank i gets block i of the reduction; without `recvbuf` in its place in `sendbuf`, whose other blocks are
        then undefined."""
        return self._call("reduce_scatter", sendbuf, recvbuf, op=op, async_op=async_op)

    def reduce_scatter_v(
        self, sendbuf: Buffer, recvbuf: Buffer, counts: Sequence[int], op: str = "sum", *, async_op: bool = False
    ) -> Any:
        """`reduce_scatter` of blocks of different lengths; `counts` has the length of each rank's."""
        return self._call("reduce_scatter_v", sendbuf, recvbuf, op=op, counts=counts, async_op=async_op)

    def scan(self, sendbuf: Buffer, recvbuf: Buffer = None, op: str = "sum", *, async_op: bool = False) -> Any:
        """Rank i gets the reduction of the `sendbuf` of ranks 0 to i; without `recvbuf` in `sendbuf` itself."""
        return self._call("scan", sendbuf, recvbuf, op=op, async_op=async_op)

    def exclusive_scan(
        self, sendbuf: Buffer, recvbuf: Buffer = None, op: str = "sum", *, async_op: bool = False
    ) -> Any:
        """Rank i gets the reduction of the `sendbuf` of ranks 0 to i - 1, and rank 0 what changes nothing: 0 for "sum"."""
        return self._call("exclusive_scan", sendbuf, recvbuf, op=op, async_op=async_op)

    def all_to_all(self, sendbuf: Buffer, recvbuf: Buffer = None, *, async_op: bool = False) -> Any:
        """Rank i gets block i of every rank; without `recvbuf` in `sendbuf` itself."""
        return self._call("all_to_all", sendbuf, recvbuf, async_op=async_op)

    def all_to_all_v(
        self,
        sendbuf: Buffer,
        send_counts: Sequence[int],
        recvbuf: Buffer,
        recv_counts: Sequence[int],
        *,
        async_op: bool = False,
    ) -> Any:
        """`all_to_all` of blocks of different lengths: so many elements to, and from, each rank."""
        return self._call(
            "all_to_all_v", sendbuf, recvbuf, counts=send_counts, recv_counts=recv_counts, async_op=async_op
        )

    def barrier(self, *, async_op: bool = False) -> Any:
        """Nobody leaves before everybody came."""
        return self._call("barrier", None, None, async_op=async_op)

    def send(self, sendbuf: Buffer, peer: int, *, async_op: bool = False) -> Any:
        """Sends a message, which `peer` must receive with the same element type and count."""
        return self._call("send", sendbuf, None, root=peer, async_op=async_op)

    def recv(self, recvbuf: Buffer, peer: int, *, async_op: bool = False) -> Any:
        """Receives a message from `peer`."""
        return self._call("recv", None, recvbuf, root=peer, async_op=async_op)

    def batch_send_recv(self, messages: Sequence[Tuple[str, Buffer, int]], *, async_op: bool = False) -> Any:
        """Sends and receives several messages at once: ("send" or "recv", buffer, peer)."""
        checked = []
        for kind, buffer, peer in messages:
            if kind not in ("send", "recv"):
                raise ValueError(f"a message is a 'send' or a 'recv', not {kind!r}")
            checked.append((kind == "send", buffer, peer))
        frame = sys._getframe(1)
        result = self._comm.batch(checked, async_op, frame.f_code, frame.f_lineno)
        return Work(result) if async_op else None

    def all_gather_object(self, obj: Any, *, async_op: bool = False) -> Any:
        """Every rank gets the objects of all ranks, in rank order.

        Objects travel pickled: only between ranks that trust each other. Memory of 64 KiB and more that pickle keeps apart,
        such as that of numpy arrays, is not copied into the pickle, and what is received is used where it lies: the large
        arrays of one call lie in one block, which is freed with the last of them.
        """
        return self._objects("all_gather_object", [obj], 0, _memory.load_all, async_op)

    def gather_object(self, obj: Any, root: int = 0, *, async_op: bool = False) -> Any:
        """The root gets the objects of all ranks, in rank order; the others None."""
        return self._objects("gather_object", [obj], root, _memory.load_all, async_op)

    def broadcast_object(self, obj: Any = None, root: int = 0, *, async_op: bool = False) -> Any:
        """Every rank gets the root's object. Only the root's `obj` is looked at."""
        mine = [obj] if self.rank == root else []
        return self._objects("broadcast_object", mine, root, _memory.load_one, async_op)

    def scatter_object(self, objs: Optional[Sequence[Any]] = None, root: int = 0, *, async_op: bool = False) -> Any:
        """Rank i gets object i of the root. Only the root's `objs` is looked at."""
        mine = objs if self.rank == root and objs is not None else []
        return self._objects("scatter_object", mine, root, _memory.load_one, async_op)

    def cancel(self, why: str = "cancelled by the program") -> None:
        """Ends the call under way and every later one with an error, here and on no other rank."""
        self._comm.cancel(why)

    def destroy(self) -> None:
        """Destroys the group on this rank. It happens by itself when nobody holds the communicator any more."""
        self._comm.destroy()

    def _call(
        self,
        collective: str,
        sendbuf: Buffer,
        recvbuf: Buffer,
        *,
        op: str = "sum",
        root: int = 0,
        counts: Optional[Sequence[int]] = None,
        recv_counts: Optional[Sequence[int]] = None,
        async_op: bool,
    ) -> Any:
        frame = sys._getframe(2)
        result = self._comm.call(
            collective, sendbuf, recvbuf, op, root, counts, recv_counts, async_op, frame.f_code, frame.f_lineno
        )
        return Work(result) if async_op else None

    def _objects(
        self,
        collective: str,
        objects: Sequence[Any],
        root: int,
        decode: Callable[[Any], Any],
        async_op: bool,
    ) -> Any:
        encoded = [_memory.dump(one) for one in objects]
        frame = sys._getframe(2)
        result = self._comm.objects(collective, encoded, root, async_op, frame.f_code, frame.f_lineno)
        return Work(result, decode) if async_op else decode(result)

    def __repr__(self) -> str:
        return f"<muster communicator {self.name!r}, rank {self.rank} of {self.size}>"
