"""Collective communication between ranks, on memory of the host, that names who is to blame when a call cannot end.

>>> import muster
>>> def rank(world):
...     group = world.everyone()
...     return sum(group.all_gather_object(world.rank))
>>> muster.threads(4, rank)
[6, 6, 6, 6]
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar, Union

from . import _memory, _muster
from ._communicator import Buffer, Communicator, Work
from ._muster import GROUP_KINDS, PRESETS, Layout, __version__
from .errors import (
    Cancelled,
    CommError,
    DataError,
    Deadlock,
    InternalError,
    InvalidArgument,
    LaunchError,
    LinkError,
    Mismatch,
    NotJoined,
    PeerDead,
    PeerFrozen,
    RendezvousError,
    ResourceError,
    Unsupported,
    Verdict,
)

__all__ = [
    "Buffer",
    "Cancelled",
    "CommError",
    "Communicator",
    "DataError",
    "Deadlock",
    "GROUP_KINDS",
    "InternalError",
    "InvalidArgument",
    "LaunchError",
    "Layout",
    "LinkError",
    "Mismatch",
    "NotJoined",
    "PRESETS",
    "PeerDead",
    "PeerFrozen",
    "RendezvousError",
    "ResourceError",
    "Unsupported",
    "Verdict",
    "Work",
    "World",
    "__version__",
    "init",
    "layout",
    "matrix",
    "preset",
    "threads",
]

_T = TypeVar("_T")
_worlds: "weakref.WeakSet[World]" = weakref.WeakSet()
_hooked = False


class World:
    """All ranks of a job, as one of them sees it. Made by `init` or `threads`."""

    def __init__(self, world: _muster.World) -> None:
        self._world = world

    @property
    def rank(self) -> int:
        """This rank."""
        return self._world.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._world.size

    def group(self, name: str, ranks: Sequence[int]) -> Communicator:
        """A communicator for these ranks, in this order; this rank is one of them.

        It costs no communication. All members make the same call, for one name in the same order.
        """
        return Communicator(self._world.group(name, list(ranks)))

    def everyone(self) -> Communicator:
        """The communicator of all ranks."""
        return self.group("world", range(self.size))

    def groups(self, layout: Layout) -> Dict[str, Communicator]:
        """This rank's communicator of each kind that `layout` has for it: "tp", "dp", "ep" and so on."""
        found = {}
        for kind in layout.kinds:
            ranks = layout.group_of(kind, self.rank)
            if ranks is not None:
                found[kind] = self.group(f"{kind}{layout.groups(kind).index(ranks)}", ranks)
        return found

    def alloc(self, shape: Union[int, Sequence[int]], dtype: Any) -> Any:
        """An array of zeroes in this rank's shared memory: the ranks of a host use such memory directly in their calls, and
        copy nothing twice.

        With a `torch.dtype` it is a torch tensor, else a numpy array; without numpy a `memoryview`. The memory is free again when
        nobody holds the array any more, also after the world has ended. Allocate once and keep it: new memory costs more
        than a call.
        """
        return _memory.alloc(self._world, shape, dtype)

    def leave(self) -> None:
        """Says goodbye: peers that still wait for this rank are told that it left.

        A script that ends without an exception leaves by itself.
        """
        _worlds.discard(self)
        self._world.leave()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # A rank that fails does not leave in good order: the others are told that it failed.
        if kind is None:
            self.leave()

    def __repr__(self) -> str:
        return f"<muster world, rank {self.rank} of {self.size}>"


def init(
    endpoint: Optional[str] = None,
    rank: Optional[int] = None,
    world_size: Optional[int] = None,
    secret: Union[str, bytes, None] = None,
    *,
    deadline: Optional[float] = None,
    bring_up: Optional[float] = None,
) -> World:
    """Joins the world of this job, and returns when all ranks are there.

    Without arguments the launcher says who this process is: muster, torchrun, mpirun, srun and others
    (docs/launch.md). Or all four are given: `endpoint` is "HOST:PORT", at which rank 0 serves the rendezvous, and `secret`
    is what all ranks of this job know and nobody else. `deadline` is how long each call may take, in seconds, and
    `bring_up` how long the ranks may take to find each other.
    """
    given = {"endpoint": endpoint, "rank": rank, "world_size": world_size, "secret": secret}
    missing = [name for name, value in given.items() if value is None]
    if endpoint is None or rank is None or world_size is None or secret is None:
        if len(missing) < len(given):
            raise TypeError(f"give all of {', '.join(given)}, or none of them; missing: {', '.join(missing)}")
        if bring_up is not None:
            raise TypeError("bring_up goes with endpoint, rank, world_size and secret")
        return _joined(_muster.join_environment(deadline))
    key = secret.encode() if isinstance(secret, str) else secret
    return _joined(
        _muster.join(rank, world_size, key, endpoint, None, None, deadline, bring_up, "arguments of muster.init")
    )


def _joined(world: _muster.World) -> World:
    _hook()
    joined = World(world)
    _worlds.add(joined)
    return joined


def _hook() -> None:
    """From the first world on, a forked child may not use what belongs to its parent."""
    global _hooked
    if not _hooked:
        _hooked = True
        os.register_at_fork(after_in_child=_muster.forked)
        atexit.register(_leave_all)


def _leave_all() -> None:
    # After an exception that nobody has caught the rank has failed, and does not say goodbye.
    if getattr(sys, "last_exc", None) is None and getattr(sys, "last_value", None) is None:
        for world in list(_worlds):
            world.leave()


def threads(count: int, body: Callable[[World], _T], *, deadline: Optional[float] = None) -> List[_T]:
    """Calls `body(world)` on `count` threads, each of which is one rank: for a first try, and for tests.

    Returns what they returned, in the order of ranks. If a rank raises an exception, the calls of the others end, and
    the exception is raised here.
    """
    _hook()

    def _call_rank(world: _muster.World, done: Callable[[Optional[_T], Optional[BaseException]], None]) -> None:
        try:
            result = body(World(world))
        except BaseException as error:
            done(None, error)
        else:
            done(result, None)

    return _muster.threads(count, _call_rank, deadline)


def layout(
    world: int,
    *,
    tp: int = 1,
    cp: int = 1,
    pp: int = 1,
    ep: int = 1,
    etp: Optional[int] = None,
    dp: Optional[int] = None,
    order: Optional[str] = None,
) -> Layout:
    """Which ranks form which group, as Megatron-LM lays them out.

    >>> layout(8, tp=2, ep=4).groups("ep")
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    """
    return _muster.layout(world, tp, cp, pp, ep, etp, dp, order)


def matrix(name: str) -> Layout:
    """The layout that a matrix stands for: Megatron-LM's `tp2ep4@8`, or vLLM's `vllm0.18:tp4dp4` (docs/layout.md).

    >>> matrix("vllm0.18:tp2dp2").groups("dp")
    [[0, 2], [1, 3]]
    """
    return _muster.matrix(name)


def preset(name: str) -> List[Tuple[str, Layout]]:
    """The phases of a preset, with their layouts; `PRESETS` has the names, docs/presets.md what they are.

    >>> [(phase, layout.sizes["tp"]) for phase, layout in preset("relax-4")]
    [('train', 4), ('rollout', 4), ('train-dp', 2)]
    """
    return _muster.preset(name)
