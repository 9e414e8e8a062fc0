"""What an operation of c10d moves, in calls of the module's table: `shim/operation.hpp` in Python.

It knows nothing of groups, works and futures.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, List, Optional, Tuple

import torch
import torch.distributed as dist

VERSION = 3
#: In place of a number of elements, where there is no buffer.
NONE = (1 << 64) - 1
AVG, MAX, MIN, PROD, SUM, BIT_AND, BIT_OR, BIT_XOR = range(1, 9)
BF16, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64 = range(1, 13)
_COLLECTIVES = {
    "all_gather": 1,
    "all_gather_v": 3,
    "all_reduce": 4,
    "all_to_all_v": 6,
    "barrier": 7,
    "broadcast": 8,
    "gather": 10,
    "recv": 13,
    "reduce": 14,
    "reduce_scatter": 15,
    "reduce_scatter_v": 16,
    "scatter": 17,
    "send": 20,
    "recv_any": 25,
}
_TYPES = {
    torch.bfloat16: (BF16, 1),
    torch.float16: (F16, 1),
    torch.float32: (F32, 1),
    torch.float64: (F64, 1),
    torch.complex64: (F32, 2),
    torch.complex128: (F64, 2),
    torch.int8: (I8, 1),
    torch.int16: (I16, 1),
    torch.int32: (I32, 1),
    torch.int64: (I64, 1),
    torch.uint16: (U16, 1),
    torch.uint32: (U32, 1),
    torch.uint64: (U64, 1),
}
_INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)


class Call(Structure):
    """One call, as python/src/table.rs has it."""

    _fields_ = [
        ("collective", c_uint8),
        ("dtype", c_uint8),
        ("op", c_uint8),
        ("lists", c_uint8),
        ("tag", c_int32),
        ("root", c_uint64),
        ("count", c_uint64),
        ("send", c_void_p),
        ("send_count", c_uint64),
        ("recv", c_void_p),
        ("recv_count", c_uint64),
        ("counts", POINTER(c_uint64)),
        ("recv_counts", POINTER(c_uint64)),
        ("site", c_void_p),
        ("source", POINTER(c_uint64)),
    ]


DONE = CFUNCTYPE(None, c_void_p, c_void_p)
_PART = CFUNCTYPE(c_void_p, c_void_p, c_char_p, POINTER(c_uint64), c_uint64, POINTER(c_void_p))


class _Table(Structure):
    _fields_ = [
        ("version", c_uint64),
        ("run", CFUNCTYPE(c_void_p, c_void_p, POINTER(Call), c_uint64, c_int64)),
        ("start", CFUNCTYPE(None, c_void_p, POINTER(Call), c_uint64, c_int64, DONE, c_void_p)),
        ("part", _PART),
        ("site", CFUNCTYPE(c_void_p, c_void_p, c_char_p, c_uint32)),
        ("awaits", CFUNCTYPE(None, c_void_p, c_uint32)),
        ("cancel", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("leave", CFUNCTYPE(None, c_void_p)),
        ("release", CFUNCTYPE(None, c_void_p)),
        ("error_text", CFUNCTYPE(c_char_p, c_void_p)),
        ("error_class", CFUNCTYPE(c_char_p, c_void_p)),
        ("error_free", CFUNCTYPE(None, c_void_p)),
    ]


_table: Optional[Any] = None


def table(capsule: Any) -> Any:
    """The table in a capsule."""
    global _table
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
    address = ctypes.cast(pointer(capsule, b"muster.table"), POINTER(c_void_p))[0]
    assert address is not None
    given = _Table.from_address(address)
    if given.version != VERSION:
        raise RuntimeError(f"the muster module has table {given.version}, this backend wants {VERSION}")
    _table = given
    return given


def failure_of(error: int) -> Exception:
    """The exception for an error of the table, which is freed."""
    assert _table is not None
    text = _table.error_text(error).decode()
    _table.error_free(error)
    return dist.DistBackendError(text)


def part(table: Any, group: int, title: str, ranks: List[int]) -> int:
    """A group of some ranks of a group."""
    error = c_void_p()
    made = table.part(group, title.encode(), (c_uint64 * len(ranks))(*ranks), len(ranks), ctypes.byref(error))
    if error.value:
        raise failure_of(error.value)
    return int(made)


def failed_ranks(text: str) -> str:
    """Whom a verdict names: "who=rank 1 (host, pid 7), rank 2 (host, pid 8) what=" or "who=ranks 1,2 what="."""
    found = re.search(r" who=r(anks? .*?)(?: \(| what=)", text)
    return "R" + found.group(1) if found else "A rank"


def type_of(tensor: torch.Tensor) -> Tuple[int, int]:
    """How elements of a tensor travel: as so many elements of a type of muster's."""
    return _TYPES.get(tensor.dtype) or (U8, tensor.element_size())


def numels(tensors: Any) -> List[int]:
    return [tensor.numel() for tensor in tensors]


def _unsupported(what: str) -> NotImplementedError:
    return NotImplementedError(f"the backend muster does not carry {what}")


def reduction(op: Any, tensor: torch.Tensor) -> int:
    """The number of a reduction; refuses what has no meaning for the tensor."""
    of = dist.ReduceOp
    if tensor.dtype == torch.bool:
        for names, number in (((of.SUM, of.MAX, of.BOR), MAX), ((of.PRODUCT, of.MIN, of.BAND), MIN), ((of.BXOR,), BIT_XOR)):
            if any(op == name for name in names):
                return number
        raise _unsupported("this reduction of truth values")
    name = str(tensor.dtype).rpartition(".")[2]
    if tensor.dtype not in _TYPES and tensor.dtype != torch.uint8:
        raise _unsupported(f"reductions of {name}")
    if tensor.is_complex() and not any(op == one for one in (of.SUM, of.AVG, of.PREMUL_SUM)):
        raise _unsupported("reductions of complex numbers but for sum and avg")
    bitwise = {BIT_AND: of.BAND, BIT_OR: of.BOR, BIT_XOR: of.BXOR}
    for number, one in bitwise.items():
        if op == one:
            if type_of(tensor)[0] not in _INTEGERS:
                raise _unsupported(f"bitwise reductions of {name}")
            return number
    others = {SUM: (of.SUM, of.PREMUL_SUM), AVG: (of.AVG,), PROD: (of.PRODUCT,), MIN: (of.MIN,), MAX: (of.MAX,)}
    for number, names in others.items():
        if any(op == one for one in names):
            return number
    raise _unsupported("this reduction")


def scaled(op: Any, tensor: torch.Tensor) -> torch.Tensor:
    if op != dist.ReduceOp.PREMUL_SUM:
        return tensor
    return tensor * op.__getstate__()[1]


def _check(tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"muster carries tensors of the CPU, not of {tensor.device}")
    if tensor.layout != torch.strided:
        raise ValueError("muster carries dense tensors")


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


class Operation:
    """Its calls, and what is kept and done for them."""

    def __init__(self, outputs: Any) -> None:
        self.calls: List[Call] = []
        self.kept: List[Any] = []
        self.outputs = list(outputs)
        #: Copies of results to where they belong, made when the calls have ended.
        self.copies: List[Tuple[torch.Tensor, torch.Tensor]] = []
        #: What else is computed then.
        self.last: Optional[Callable[[], None]] = None

    def input(self, tensor: torch.Tensor) -> torch.Tensor:
        _check(tensor)
        plain = tensor if _is_plain(tensor) else tensor.detach().resolve_conj().resolve_neg().contiguous()
        self.kept.append(plain)
        return plain

    def inout(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that is read and written."""
        plain = self.input(tensor)
        if plain is not tensor:
            self.copies.append((tensor, plain))
        return plain

    def output(self, tensor: torch.Tensor) -> torch.Tensor:
        _check(tensor)
        plain = tensor if _is_plain(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)
        self.kept.append(plain)
        if plain is not tensor:
            self.copies.append((tensor, plain))
        return plain

    def flat(self, tensors: Any, fills: bool) -> torch.Tensor:
        """Memory for these tensors one behind the other: their own where they lie so. Else they are copied, there (`fills`) or
        back."""
        if not tensors:
            raise ValueError("an empty list of tensors")
        first = tensors[0]
        total, adjacent, behind = 0, True, first.data_ptr()
        for tensor in tensors:
            _check(tensor)
            if tensor.dtype != first.dtype:
                raise TypeError("tensors of one call differ in type")
            adjacent = adjacent and _is_plain(tensor) and tensor.data_ptr() == behind
            behind += tensor.numel() * tensor.element_size()
            total += tensor.numel()
        self.kept += tensors
        held = first.untyped_storage().nbytes() // first.element_size() - first.storage_offset()
        if adjacent and held >= total:
            return torch.as_strided(first.detach(), (total,), (1,))
        whole = torch.empty(total, dtype=first.dtype)
        at = 0
        for tensor in tensors:
            piece = whole[at : at + tensor.numel()]
            at += tensor.numel()
            if fills:
                piece.copy_(tensor.detach().reshape(-1))
            else:
                self.copies.append((tensor, piece.view(tensor.shape)))
        self.kept.append(whole)
        return whole

    def add(
        self,
        collective: str,
        send: Optional[torch.Tensor] = None,
        recv: Optional[torch.Tensor] = None,
        *,
        root: int = 0,
        how: int = SUM,
        tag: int = 0,
        count: Optional[int] = None,
        counts: Optional[List[int]] = None,
        recv_counts: Optional[List[int]] = None,
    ) -> None:
        """One call. `count` is in elements of the tensors, `counts` in those that travel."""
        if send is not None and recv is not None and send.dtype != recv.dtype:
            raise TypeError("input and output differ in type")
        one = recv if send is None else send
        dtype, factor = (U8, 1) if one is None else type_of(one)
        call = Call(_COLLECTIVES[collective], dtype, how, 0, tag, root)
        call.send_count = call.recv_count = NONE
        if send is not None:
            call.send, call.send_count = send.data_ptr() or None, send.numel() * factor
        if recv is not None:
            call.recv, call.recv_count = recv.data_ptr() or None, recv.numel() * factor
        if one is not None:
            call.count = (one.numel() if count is None else count) * factor
        for name, values in (("counts", counts), ("recv_counts", recv_counts)):
            if values is not None:
                list_of = (c_uint64 * len(values))(*values)
                self.kept.append(list_of)
                setattr(call, name, list_of)
                call.lists += 1
        if collective == "recv_any":
            source = c_uint64()
            self.kept.append(source)
            call.source = ctypes.pointer(source)
        self.calls.append(call)

    def finish(self) -> None:
        with torch.no_grad():
            if self.last:
                self.last()
            for target, result in self.copies:
                target.copy_(result)
