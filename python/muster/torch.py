"""The torch.distributed backend "muster".

    import muster.torch                          # torch 2.14 and newer find it by themselves
    dist.init_process_group("muster")            # or "cpu:muster,npu:hccl"

`MUSTER_TORCH=gloo` in the environment puts it in gloo's place, for programs that write "gloo" out.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from datetime import timedelta
from typing import Any, Callable, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import muster
from muster import _muster, _shim

#: What torch takes our backend for.
_TYPE = dist.ProcessGroup.BackendType.UCC
_plain_register = dist.ProcessGroup._register_backend
_plain_new_group = distributed_c10d._new_process_group_helper
_is_in_gloos_place = False
#: Groups that are their world's default group or have a world of their own, made so far in this process.
_worlds_made = 0
_world: Optional[muster.World] = None
#: What makes backends where the compiled one cannot be had.
_python_maker: Optional[Callable[..., Any]] = None


def register() -> None:
    """Makes the backend known to torch.distributed. Called by `import muster.torch`, and once is enough."""
    if "MUSTER" in dist.Backend._plugins:
        return
    dist.Backend.register_backend("muster", _create, extended_api=True, devices=["cpu"])
    # Two third-party backends of type CUSTOM in one group silently become one. UCC is a type that nothing casts to a
    # class of torch's own, as it does with GLOO.
    dist.Backend.backend_type_map["muster"] = _TYPE
    if not _has_types_of_plugins():
        setattr(dist.ProcessGroup, "_register_backend", _register_with_type)


def _has_types_of_plugins() -> bool:
    """Whether torch takes the type of a third-party backend from the map. Before 2.14 each is CUSTOM, and one in gloo's place GLOO."""
    return _version() >= (2, 14)


def _version() -> Tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _register_with_type(group: Any, device: Any, kind: Any, backend: Any = None) -> None:
    """In the place of `ProcessGroup._register_backend`: a backend of ours has our type."""
    if backend is not None and _shim.is_loaded() and _shim.load().is_muster(backend):
        kind = _TYPE
    _plain_register(group, device, kind, backend)


def replace_gloo() -> None:
    """Puts muster in gloo's place: every gloo group of this process becomes a group of muster."""
    global _is_in_gloos_place
    register()
    _is_in_gloos_place = True
    dist.Backend.backend_type_map["gloo"] = dist.Backend.backend_type_map["muster"]
    if hasattr(dist.Backend, "_ensure_backend_registered"):
        # Else torch would register its own when the name is first used.
        dist.Backend._ensure_backend_registered("gloo")
        dist.Backend._plugins["GLOO"] = dist.Backend._plugins["MUSTER"]
    elif distributed_c10d._new_process_group_helper is not _new_group_in_gloos_place:
        dist.Backend.default_device_backend_map["cpu"] = "muster"
        distributed_c10d._new_process_group_helper = _new_group_in_gloos_place


def _new_group_in_gloos_place(size: int, rank: int, ranks: Any, backend: Any, *others: Any, **named: Any) -> Any:
    """In the place of torch's function of the same arguments before 2.14, where gloo is no plugin: a group of muster that is
    known as one of gloo."""
    ours = re.sub(r"\bgloo\b", "muster", str(backend))
    group, store = _plain_new_group(size, rank, ranks, dist.Backend(ours), *others, **named)
    world = distributed_c10d._world
    if group in world.pg_map:
        world.pg_map[group] = (backend, store)
        world.pg_backend_config[group] = re.sub(r"\bmuster\b", "gloo", world.pg_backend_config[group])
    return group, store


def _name() -> str:
    """What the backend calls itself, in profiles too: the name under which programs ask for it."""
    plugin = dist.Backend._plugins.get("GLOO")
    is_gloo = _is_in_gloos_place or plugin is not None and plugin.creator_fn is _create
    return "gloo" if is_gloo else "muster"


def _create(options: Any, backend_options: Any) -> Any:
    """Called by torch for each new group, on its members."""
    global _world
    del backend_options
    rank, size = options.group_rank, options.group_size
    ranks: List[int] = list(options.global_ranks_in_group)
    if not ranks:
        if rank == 0 and _name() == "gloo":
            print("muster: in gloo's place; get_backend() still says gloo", file=sys.stderr, flush=True)
        _world = _join(options.store, rank, size, options.timeout)
        return _backend(_world, "default", list(range(size)), rank, options.timeout, True)
    if _world is None or not dist.is_initialized() or dist.get_world_size() != _size_of(_world):
        # The default group is another backend's: these ranks make a world of their own.
        return _group_of_own_world(options.store, rank, size, options.timeout, options.group_id)
    return _backend(_world, options.group_id, ranks, rank, options.timeout, False)


def _size_of(world: muster.World) -> int:
    try:
        return world.size
    except RuntimeError:
        # It was left.
        return 0


def _group_of_own_world(store: Any, rank: int, size: int, timeout: timedelta, name: str) -> Any:
    world = _join(store, rank, size, timeout)
    return _backend(world, name, list(range(size)), rank, timeout, True)


def _backend(world: muster.World, name: str, ranks: List[int], rank: int, timeout: timedelta, is_root: bool) -> Any:
    title = name if len(name) <= 64 else f"{name[:30]}...{name[-30:]}"
    comm = world._world.group(title, ranks)
    milliseconds = int(timeout.total_seconds() * 1000)
    comm.deadline = timeout.total_seconds()
    group = _muster.group(comm)
    return _maker()(
        _muster.table(), group, rank, len(ranks), milliseconds, _name(), title, is_root
    )


def _maker() -> Callable[..., Any]:
    """What makes a backend: the compiled module, or the one in Python where nothing compiles."""
    global _python_maker
    if _python_maker is not None:
        return _python_maker
    try:
        make: Callable[..., Any] = _shim.load().create
        return make
    except _shim.NoCompiler as why:
        if not _python_backend_is_possible():
            also = f"torch 2.14 and newer works without a compiler; this is torch {torch.__version__}"
            raise _shim.NoCompiler(f"{why}\n{also}") from None
        from muster import _backend

        print(f"muster: {why}\nmuster: the backend in Python takes its place; see docs/python.md", file=sys.stderr, flush=True)
        _python_maker = _backend.create
        return _python_maker


def _python_backend_is_possible() -> bool:
    """Whether this torch takes a backend that is a Python class."""
    return _version() >= (2, 14)


def _join(store: Any, rank: int, size: int, timeout: timedelta) -> muster.World:
    """A world of these ranks, who find each other by torch's store. Rank 0 serves it."""
    global _worlds_made
    # Compiled, where it has to be, before the others wait for this rank.
    _maker()
    # The store may be the one of an earlier default group, with what was said then.
    _worlds_made += 1
    prefix = f"muster/{_worlds_made}"
    seconds = timeout.total_seconds()
    store.set(f"{prefix}/host/{rank}", _host())
    if rank != 0:
        endpoint, secret = store.get(f"{prefix}/meet").decode().split(" ")
        world = _muster.join(rank, size, secret.encode(), endpoint, None, None, seconds, seconds, "torch.distributed")
        return muster._joined(world)
    hosts = {store.get(f"{prefix}/host/{other}").decode() for other in range(size)}
    bind = "127.0.0.1" if len(hosts) == 1 else _own_address()
    secret = os.urandom(32).hex()

    def tell(endpoint: str) -> None:
        store.set(f"{prefix}/meet", f"{endpoint} {secret}")

    world = _muster.join(rank, size, secret.encode(), None, bind, tell, seconds, seconds, "torch.distributed")
    return muster._joined(world)


def _host() -> str:
    """The same for ranks that can meet on a loopback address."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot} {os.stat('/proc/self/ns/net').st_ino}"


def _own_address() -> str:
    """An address of this host under which the others reach it: that of MASTER_ADDR if it is this host's."""
    for name in (os.environ.get("MASTER_ADDR", ""), socket.gethostname()):
        try:
            address = socket.gethostbyname(name) if name else "127.0.0.1"
            if not address.startswith("127."):
                with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                    probe.bind((address, 0))
                return address
        except OSError:
            continue
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: it only asks which way packets would go.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


register()
