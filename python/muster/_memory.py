"""Memory of the runtime as arrays of Python, and objects as bytes: what is copied, and what is not.

A block of the runtime becomes a ctypes array, which has the buffer protocol in every Python and keeps the block. numpy and torch
make their arrays of it, and keep it.
"""

from __future__ import annotations

import ctypes
import math
import operator
import pickle
import struct
import sys
from typing import Any, Iterable, List, Optional, Sequence, Tuple, Union

from . import _muster

#: Element types by name, with their letters in the buffer protocol.
_LETTERS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}
#: Types that have no letter there, but are carried.
_OTHERS = ("float16", "bfloat16")
#: Buffers of an object from this size on travel beside its pickle, and are not copied into it.
_APART_BYTES = 64 << 10


def _bytes_of(block: _muster.Block) -> Any:
    """The block as a ctypes array, which keeps it."""
    if block.length == 0:
        return bytearray()
    held: Any = (ctypes.c_ubyte * block.length).from_address(block.address)
    held._block = block
    return held


def _dimensions(shape: Union[int, Sequence[int]]) -> Tuple[int, ...]:
    several: Any = shape if isinstance(shape, Iterable) else (shape,)
    try:
        given = tuple(operator.index(one) for one in several)
    except TypeError:
        raise TypeError(f"shape is {shape!r}; it must be a whole number or a sequence of them") from None
    if any(one < 0 for one in given):
        raise ValueError(f"shape is {shape!r}; no dimension may be negative")
    return given


def alloc(world: _muster.World, shape: Union[int, Sequence[int]], dtype: Any) -> Any:
    """`World.alloc`."""
    dimensions = _dimensions(shape)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        name, size = str(dtype).rpartition(".")[2], int(dtype.itemsize)
        _check(name, dtype)
        memory = _bytes_of(world.alloc(math.prod(dimensions) * size))
        if len(memory) == 0:
            return torch.empty(dimensions, dtype=dtype)
        return torch.frombuffer(memory, dtype=dtype).view(dimensions)
    try:
        import numpy
    except ImportError:
        return _plain(world, dimensions, dtype)
    try:
        kind = numpy.dtype(dtype)
    except TypeError as error:
        advice = "; for bfloat16 give torch.bfloat16 or ml_dtypes.bfloat16" if "bfloat16" in str(dtype) else ""
        raise TypeError(f"dtype is {dtype!r}, which numpy does not know ({error}){advice}") from None
    _check(kind.name, dtype)
    if not kind.isnative:
        raise TypeError(f"dtype is {dtype!r}; the bytes of its elements must be in the order of this machine")
    memory = _bytes_of(world.alloc(math.prod(dimensions) * kind.itemsize))
    return numpy.frombuffer(memory, numpy.uint8).view(kind).reshape(dimensions)


def _check(name: str, dtype: Any) -> None:
    if name not in _LETTERS and name not in _OTHERS:
        raise TypeError(f"dtype is {dtype!r}; carried are {', '.join(_LETTERS)}, {', '.join(_OTHERS)}")


def _plain(world: _muster.World, dimensions: Tuple[int, ...], dtype: Any) -> Any:
    """Without numpy."""
    letter = _LETTERS.get(str(dtype))
    if letter is None:
        raise TypeError(f"dtype is {dtype!r}; without numpy and torch it may be {', '.join(_LETTERS)}")
    count = math.prod(dimensions)
    memory: Any = memoryview(_bytes_of(world.alloc(count * struct.calcsize(letter)))).cast("B")
    return memory.cast(letter, dimensions) if count > 0 else memory.cast(letter)


def dump(obj: Any) -> List[Any]:
    """An object as its pickle, and behind it, if it has large buffers, which of them are read-only and the buffers."""
    apart: List[memoryview] = []

    def is_inside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _APART_BYTES:
            return True
        apart.append(view)
        return False

    stream = pickle.dumps(obj, protocol=5, buffer_callback=is_inside)
    return [stream, bytes(view.readonly for view in apart), *apart] if apart else [stream]


#: Objects as they come: the memory in which they lie, if it is to be kept, and the parts of each: bytes, or where they lie
#: in the memory.
Received = Tuple[Optional[_muster.Block], List[List[Any]]]


def load_all(received: Optional[Received]) -> Optional[List[Any]]:
    """The objects; None where this rank gets none."""
    if received is None:
        return None
    block, objects = received
    if block is None:
        return [pickle.loads(parts[0]) for parts in objects]
    memory = memoryview(_bytes_of(block)).cast("B")
    return [_load([memory[start:end] for start, end in places]) for places in objects]


def load_one(received: Received) -> Any:
    """The one object."""
    objects = load_all(received)
    assert objects is not None
    return objects[0]


def _load(parts: List[memoryview]) -> Any:
    if len(parts) == 1:
        return pickle.loads(parts[0])
    stream, is_read_only, *apart = parts
    buffers = [view.toreadonly() if read_only else view for view, read_only in zip(apart, is_read_only)]
    return pickle.loads(stream, buffers=buffers)
