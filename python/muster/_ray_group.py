"""A group of `ray.util.collective` over muster: made by `muster.ray.register()`, a world for each group."""

from __future__ import annotations

import secrets
import time
from typing import Any, List, Optional

import ray
from ray.experimental import internal_kv
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from ray.util.collective.types import (
    AllGatherOptions,
    AllReduceOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
)

from . import World, _joined, _muster

#: Seconds in which the members of a group must have come.
BRING_UP = 120.0
_LOOK_EVERY = 0.05
_OPS = {ReduceOp.SUM: "sum", ReduceOp.PRODUCT: "prod", ReduceOp.MIN: "min", ReduceOp.MAX: "max"}


def node_address() -> str:
    """The address by which Ray's nodes reach this one."""
    own = ray.get_runtime_context().get_node_id()
    for node in ray.nodes():
        if node["NodeID"] == own:
            return str(node["NodeManagerAddress"])
    raise RuntimeError(f"Ray does not know this node ({own})")


class MusterGroup(BaseGroup):  # type: ignore[misc]
    """What `ray.util.collective` calls in each member."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self._world: Optional[World] = _meet(world_size, rank, group_name)
        self._comm = self._world.everyone()

    @classmethod
    def backend(cls) -> str:
        return "MUSTER"

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def destroy_group(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            self._comm.destroy()
            world.leave()

    def allreduce(self, tensor: List[Any], allreduce_options: Any = AllReduceOptions) -> None:
        self._comm.all_reduce(_one(tensor), op=_OPS[allreduce_options.reduceOp])

    def barrier(self, barrier_options: Any = BarrierOptions) -> None:
        self._comm.barrier()

    def reduce(self, tensor: List[Any], reduce_options: Any = ReduceOptions) -> None:
        self._comm.reduce(_one(tensor), root=reduce_options.root_rank, op=_OPS[reduce_options.reduceOp])

    def allgather(
        self, tensor_list: List[List[Any]], tensor: List[Any], allgather_options: Any = AllGatherOptions
    ) -> None:
        mine, results = _one(tensor), _one(tensor_list)
        everything = _stacked([mine] * self.world_size)
        self._comm.all_gather(mine, everything)
        for result, got in zip(results, everything):
            result[...] = got

    def broadcast(self, tensor: List[Any], broadcast_options: Any = BroadcastOptions) -> None:
        self._comm.broadcast(_one(tensor), root=broadcast_options.root_rank)

    def reducescatter(
        self, tensor: List[Any], tensor_list: List[List[Any]], reducescatter_options: Any = ReduceScatterOptions
    ) -> None:
        self._comm.reduce_scatter(_stacked(_one(tensor_list)), _one(tensor), op=_OPS[reducescatter_options.reduceOp])

    def send(self, tensor: List[Any], send_options: Any) -> None:
        self._comm.send(_one(tensor), send_options.dst_rank)

    def recv(self, tensor: List[Any], recv_options: Any) -> None:
        self._comm.recv(_one(tensor), recv_options.src_rank)


def _one(tensors: List[Any]) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"{len(tensors)} tensors; the multi-GPU calls of ray.util.collective are not carried, which take several")
    return tensors[0]


def _stacked(tensors: List[Any]) -> Any:
    """Tensors in one, the first dimension of which counts them."""
    if hasattr(tensors[0], "data_ptr"):
        import torch

        return torch.stack(tensors)
    import numpy

    return numpy.stack(tensors)


def _meet(world_size: int, rank: int, group_name: str) -> World:
    """Rank 0 takes a free port and puts it where the others look: into Ray's own store, under the name of the group."""
    key = f"muster/{group_name}".encode()
    source = f"group {group_name!r} of ray.util.collective"
    if rank == 0:
        secret = secrets.token_hex(32)

        def tell(endpoint: str) -> None:
            internal_kv._internal_kv_put(key, f"{endpoint} {secret}".encode(), overwrite=True)

        try:
            joined = _muster.join(0, world_size, secret.encode(), None, node_address(), tell, None, BRING_UP, source)
        finally:
            # Nobody looks any more. A group of this name that is made later has a key of its own.
            internal_kv._internal_kv_del(key)
    else:
        endpoint, secret = _look_for(key, group_name).split()
        joined = _muster.join(rank, world_size, secret.encode(), endpoint, None, None, None, BRING_UP, source)
    world = _joined(joined)
    # Until the key is gone nobody goes on, who may make a group of this name again.
    world.group("meet", range(world_size)).barrier()
    return world


def _look_for(key: bytes, group_name: str) -> str:
    deadline = time.monotonic() + BRING_UP
    while time.monotonic() < deadline:
        found = internal_kv._internal_kv_get(key)
        if found:
            return str(found.decode())
        time.sleep(_LOOK_EVERY)
    raise TimeoutError(f"rank 0 of the group {group_name!r} has not come within {BRING_UP:.0f} s")
