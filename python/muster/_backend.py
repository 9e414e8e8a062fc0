"""The backend of torch.distributed in Python, for where the shim cannot be compiled. Needs torch 2.14 or newer.

It does what `shim/backend.cpp` does, over the same table of C functions. A call costs some microseconds more. Torch wraps
the works of such a backend and forwards only `wait` and `get_future`: `work.is_completed()` stays false, and a receive from
any source cannot say who sent.
"""

from __future__ import annotations

import contextlib
import math
from datetime import timedelta
from typing import Any, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, Work

from muster import _operation, _work
from muster._operation import Call, Operation, numels, reduction, scaled, type_of

#: Torch holds only the C++ half of a backend.
_kept: List["PythonBackend"] = []


def create(
    capsule: Any, group: int, rank: int, size: int, timeout_ms: int, name: str, title: str, is_root: bool
) -> "PythonBackend":
    """As `create` of the compiled module."""
    table = _operation.table(capsule)
    timeout = timedelta(milliseconds=timeout_ms)
    return PythonBackend(table, group, rank, size, timeout, name, title, is_root)


def _one(tensors: Any) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"one tensor for each rank is wanted, not {len(tensors)}")
    return tensors[0]


class PythonBackend(Backend):
    """The backend "muster" as torch calls it."""

    supports_splitting = property(lambda self: True)
    supports_coalescing = property(lambda self: True)
    _supports_time_estimate = property(lambda self: False)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)

    def __init__(
        self, table: Any, group: int, rank: int, size: int, timeout: timedelta, name: str, title: str, is_root: bool
    ) -> None:
        super().__init__(rank, size)
        self._table = table
        self._group: Optional[int] = group
        self._me, self._n = rank, size
        self._timeout = timeout
        self._name, self._title = name, title
        self._is_root = is_root
        self._seq = self._monitored = self._splits = 0
        self._coalesced: Optional[List[_work.OneWork]] = None
        _kept.append(self)

    def getBackendName(self) -> str:
        return self._name

    @property
    def options(self) -> Any:
        return Backend.Options(self._name, self._timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._seq

    def supports_tensor_alloc(self, device: Any) -> bool:
        return False

    def shutdown(self) -> None:
        if self._group is None:
            return
        if self._is_root:
            self._table.leave(self._group)
        # A call that is under way still needs it.
        if not _work.is_under_way(self):
            group, self._group = self._group, None
            self._table.release(group)

    def abort(self) -> None:
        self.cancel("abort() was called")

    def cancel(self, why: str) -> None:
        """Ends the calls that are under way, with this reason."""
        if self._group is not None:
            self._table.cancel(self._group, why.encode())

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """While this thread waits for calls that were started: verdicts then know that it does not run the program."""
        group = self._group
        if group is None:
            yield
            return
        self._table.awaits(group, 1)
        try:
            yield
        finally:
            if self._group is not None:
                self._table.awaits(group, 0)

    def _open_group(self) -> int:
        if self._group is None:
            raise RuntimeError("this process group has been destroyed")
        return self._group

    def start_coalescing(self) -> None:
        self._coalesced = []

    def end_coalescing(self) -> Work:
        works, self._coalesced = self._coalesced or [], None
        return _work.AllWork(works)

    # ---- Collectives ----

    def broadcast(self, tensors: Any, opts: Any) -> Work:
        op = Operation(tensors)
        op.add("broadcast", recv=op.inout(_one(tensors)), root=opts.rootRank)
        return self._begin(op, opts)

    def allreduce(self, tensors: Any, opts: Any) -> Work:
        op = Operation(tensors)
        for tensor in tensors:
            if tensor.layout == torch.sparse_coo:
                return self.allreduce_sparse(tensors, opts)
            how = reduction(opts.reduceOp, tensor)
            send = op.input(scaled(opts.reduceOp, tensor))
            op.add("all_reduce", send, send if send is tensor else op.output(tensor), how=how)
        return self._begin(op, opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any) -> Work:
        return self.allreduce(tensors, opts)

    def allreduce_sparse(self, tensors: Any, opts: Any) -> Work:
        """Each rank's indices and values go to all, and every rank adds them up."""
        tensor = _one(tensors).coalesce()
        if opts.reduceOp != dist.ReduceOp.SUM:
            raise NotImplementedError("the backend muster does not carry reductions of sparse tensors but for the sum")
        parts = [tensor.indices().t().contiguous(), tensor.values().contiguous()]
        rows, all_rows = torch.tensor([len(parts[1])]), torch.empty(self._n, dtype=torch.int64)
        first = Operation([])
        first.add("all_gather", rows, all_rows)
        self._run(self._open_group(), first, self._timeout)
        op = Operation(tensors)
        wholes = []
        for part in parts:
            whole = torch.empty((int(all_rows.sum()), *part.shape[1:]), dtype=part.dtype)
            row = math.prod(part.shape[1:]) * type_of(part)[1]
            counts = [int(count) * row for count in all_rows]
            op.add("all_gather_v", op.input(part), op.output(whole), counts=counts)
            wholes.append(whole)

        def add_up() -> None:
            indices, values = wholes
            tensors[0].copy_(torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce())

        op.last = add_up
        return self._begin(op, opts)

    def reduce(self, tensors: Any, opts: Any) -> Work:
        op = Operation(tensors)
        how = reduction(opts.reduceOp, _one(tensors))
        send = op.input(scaled(opts.reduceOp, tensors[0]))
        recv = None
        if opts.rootRank == self._me:
            recv = send if send is tensors[0] else op.output(tensors[0])
        op.add("reduce", send, recv, root=opts.rootRank, how=how)
        return self._begin(op, opts)

    def allgather(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        op = Operation(_one(outputs))
        self._gather_all(op, outputs[0], _one(inputs))
        return self._begin(op, opts)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        if len(outputs) != self._n or any(len(one) != len(inputs) for one in outputs):
            raise ValueError("one list of as many outputs as inputs is wanted for each rank")
        op = Operation([tensor for one in outputs for tensor in one])
        for at, tensor in enumerate(inputs):
            self._gather_all(op, [one[at] for one in outputs], tensor)
        return self._begin(op, opts)

    def all_gather_single(self, output: Any, input: Any, opts: Any) -> Work:
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        op = Operation(outputs)
        for output, input in zip(outputs, inputs):
            op.add("all_gather", op.input(input), op.output(output))
        return self._begin(op, opts)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        is_root = opts.rootRank == self._me
        send = _one(inputs)
        op = Operation(_one(outputs) if is_root else [])
        if is_root and numels(outputs[0]) != [send.numel()] * self._n:
            raise ValueError("gather needs an output of the input's size for each rank")
        recv = op.flat(outputs[0], fills=False) if is_root else None
        op.add("gather", op.input(send), recv, root=opts.rootRank)
        return self._begin(op, opts)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        is_root = opts.rootRank == self._me
        op = Operation(outputs)
        recv = op.output(_one(outputs))
        if is_root and numels(_one(inputs)) != [recv.numel()] * self._n:
            raise ValueError("scatter needs an input of the output's size for each rank")
        send = op.flat(inputs[0], fills=True) if is_root else None
        op.add("scatter", send, recv, root=opts.rootRank, count=recv.numel())
        return self._begin(op, opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        op = Operation(outputs)
        if len(_one(inputs)) != self._n:
            raise ValueError("reduce_scatter needs an input for each rank")
        recv = op.output(_one(outputs))
        how = reduction(opts.reduceOp, recv)
        send = op.input(scaled(opts.reduceOp, op.flat(inputs[0], fills=True)))
        if numels(inputs[0]) == [recv.numel()] * self._n:
            op.add("reduce_scatter", send, recv, how=how, count=recv.numel())
        else:
            factor = type_of(recv)[1]
            counts = [count * factor for count in numels(inputs[0])]
            op.add("reduce_scatter_v", send, recv, how=how, counts=counts)
        return self._begin(op, opts)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any) -> Work:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        op = Operation(outputs)
        for output, input in zip(outputs, inputs):
            how = reduction(opts.reduceOp, input)
            send = op.input(scaled(opts.reduceOp, input))
            op.add("reduce_scatter", send, op.output(output), how=how, count=send.numel() // self._n)
        return self._begin(op, opts)

    def all_to_all_single(self, output: Any, input: Any, output_splits: Any, input_splits: Any, opts: Any) -> Work:
        op = Operation([output])
        send, recv = op.input(input), op.output(output)
        counts, recv_counts = self._lengths(send, input_splits), self._lengths(recv, output_splits)
        op.add("all_to_all_v", send, recv, counts=counts, recv_counts=recv_counts)
        return self._begin(op, opts)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        if len(outputs) != self._n or len(inputs) != self._n:
            raise ValueError("all_to_all needs an input and an output for each rank")
        op = Operation(outputs)
        send, recv = op.flat(inputs, fills=True), op.flat(outputs, fills=False)
        factor = type_of(send)[1]
        counts, recv_counts = ([count * factor for count in numels(one)] for one in (inputs, outputs))
        op.add("all_to_all_v", send, recv, counts=counts, recv_counts=recv_counts)
        return self._begin(op, opts)

    def barrier(self, opts: Any) -> Work:
        op = Operation([])
        op.add("barrier")
        return self._begin(op, opts)

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """On a group of its own, so that a rank that does not come costs only this barrier."""
        timeout = self._timeout if opts.timeout < timedelta(0) else opts.timeout
        milliseconds = int(timeout.total_seconds() * 1000)
        if milliseconds <= 0:
            raise RuntimeError(f"Rank {self._me} timed out in monitoredBarrier after 0 ms")
        self._monitored += 1
        op = Operation([])
        op.add("barrier")
        try:
            group = self._part(f"monitored barrier {self._monitored} of {self._title}", list(range(self._n)))
            try:
                self._run(group, op, timeout)
            finally:
                self._table.release(group)
        except dist.DistBackendError as error:
            what = f"Rank {self._me} successfully reached monitoredBarrier, but received errors while waiting"
            if self._me == 0:
                what = f"{_operation.failed_ranks(str(error))} failed to pass monitoredBarrier in {milliseconds} ms"
            raise dist.DistBackendError(f"{what}\n{error}") from None

    # ---- Messages ----

    def send(self, tensors: Any, target: int, tag: int) -> Work:
        op = Operation(tensors)
        op.add("send", op.input(_one(tensors)), root=target, tag=tag)
        return self._start(op, self._timeout)

    def recv(self, tensors: Any, source: int, tag: int) -> Work:
        op = Operation(tensors)
        op.add("recv", recv=op.output(_one(tensors)), root=source, tag=tag)
        return self._start(op, self._timeout)

    def recv_anysource(self, tensors: Any, tag: int) -> Work:
        op = Operation(tensors)
        op.add("recv_any", recv=op.output(_one(tensors)), tag=tag)
        return self._start(op, self._timeout)

    def split(self, store: Any, ranks: Any, opts: Any) -> Optional[Backend]:
        """A rank of the parent that is not among them gets nothing."""
        if self._me not in ranks:
            return None
        self._splits += 1
        title = getattr(opts, "group_name", "") or f"split {self._splits} of {self._title}"
        group = self._part(title, list(ranks))
        timeout = opts._timeout
        return PythonBackend(
            self._table, group, list(ranks).index(self._me), len(ranks), timeout, self._name, title, False
        )

    # ---- How calls are made ----

    def _part(self, title: str, ranks: List[int]) -> int:
        return _operation.part(self._table, self._open_group(), title, ranks)

    def _lengths(self, tensor: Any, splits: Any) -> List[int]:
        rows = tensor.shape[0] if tensor.dim() else tensor.numel()
        row = tensor.numel() // rows * type_of(tensor)[1] if rows else 0
        if not splits:
            if rows % self._n:
                raise ValueError(f"dimension 0 of {rows} is no multiple of the group's {self._n} ranks")
            return [rows // self._n * row] * self._n
        if len(splits) != self._n or min(splits) < 0:
            raise ValueError("one split for each rank is wanted, and none is negative")
        if sum(splits) != rows:
            raise ValueError(f"splits add up to {sum(splits)}, and dimension 0 is {rows}")
        return [size * row for size in splits]

    def _gather_all(self, op: Operation, outputs: Any, input: Any) -> None:
        if len(outputs) != self._n:
            raise ValueError("all_gather needs an output for each rank")
        send, recv = op.input(input), op.flat(outputs, fills=False)
        if numels(outputs) == [send.numel()] * self._n:
            op.add("all_gather", send, recv)
        else:
            factor = type_of(send)[1]
            op.add("all_gather_v", send, recv, counts=[count * factor for count in numels(outputs)])

    def _begin(self, op: Operation, opts: Any) -> Work:
        timeout = self._timeout if opts.timeout < timedelta(0) else opts.timeout
        if opts.asyncOp or self._coalesced is not None:
            return self._start(op, timeout)
        work = _work.OneWork(op, self)
        try:
            self._run(self._open_group(), op, timeout)
        except dist.DistBackendError as error:
            work.end(error)
        else:
            work.end(None)
        return work

    def _run(self, group: int, op: Operation, timeout: timedelta) -> None:
        calls, count, milliseconds = self._prepared(op, timeout)
        error = self._table.run(group, calls, count, milliseconds)
        if error:
            raise _operation.failure_of(error)

    def _start(self, op: Operation, timeout: timedelta) -> Work:
        group = self._open_group()
        calls, count, milliseconds = self._prepared(op, timeout)
        work = _work.OneWork(op, self)
        if self._coalesced is not None:
            self._coalesced.append(work)
        self._table.start(group, calls, count, milliseconds, _work.DONE, _work.started(work))
        return work

    def _prepared(self, op: Operation, timeout: timedelta) -> Tuple[Any, int, int]:
        self._seq += 1
        site = _work.call_site(self._table)
        for call in op.calls:
            call.site = site
        calls = (Call * len(op.calls))(*op.calls)
        op.kept.append(calls)
        return calls, len(calls), int(timeout.total_seconds() * 1000)
