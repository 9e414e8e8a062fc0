"""What c10d waits for, and the place in the Python program that a call comes from: `shim/work.hpp` in Python."""

from __future__ import annotations

import atexit
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, List, Optional

import torch
from torch._C._distributed_c10d import Work

from muster import _operation
from muster._operation import Operation

#: Time that works under way have to end in when the process does.
END_SECONDS = 2.0
#: Code objects that are remembered, as the place of a call.
_CODES_MAX = 4096
#: What is no place in the program: torch's files, and those of this package that make calls for torch.
_FOLDERS = (*(path + "/" for path in torch.__path__), str(Path(__file__).parent) + "/_")

_codes: Dict[int, Any] = {}
#: Works that the runtime has, by the number that it was given for each.
_started: Dict[int, "OneWork"] = {}
_numbers = iter(range(1, 1 << 62))


def _is_torch(file: str) -> bool:
    return file.startswith(_FOLDERS) or file.endswith("/contextlib.py")


def call_site(table: Any) -> Optional[int]:
    """The innermost frame of the main thread that is not torch's own."""
    if threading.get_ident() != threading.main_thread().ident:
        return None
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _is_torch(code.co_filename):
            if id(code) not in _codes:
                if len(_codes) == _CODES_MAX:
                    return None
                # It is kept, so that its address stands for it for ever.
                _codes[id(code)] = code
            return table.site(id(code), code.co_filename.encode(), frame.f_lineno)
        frame = frame.f_back
    return None


class OneWork(Work):
    """A call, and what is done when it has ended."""

    def __init__(self, operation: Operation, backend: Any) -> None:
        super().__init__()
        self.operation: Optional[Operation] = operation
        self.backend = backend
        self._outputs = operation.outputs
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._failure: Optional[BaseException] = None
        self._future: Optional[torch.futures.Future] = None

    def end(self, failure: Optional[BaseException]) -> None:
        operation, self.operation = self.operation, None
        if failure is None and operation is not None:
            try:
                operation.finish()
            except Exception as error:
                failure = error
        self._failure = failure
        with self._lock:
            self._ended.set()
            future = self._future
        if future is not None:
            self._complete(future)

    def _complete(self, future: torch.futures.Future) -> None:
        if self._failure is not None:
            future.set_exception(self._failure)
        else:
            future.set_result(self._outputs)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        seconds = timeout.total_seconds()
        with self.backend.awaited():
            has_ended = self._ended.wait(seconds if seconds > 0 else None)
        if not has_ended:
            raise RuntimeError("Operation timed out!")
        if self._failure is not None:
            raise self._failure
        return True

    def get_future(self) -> torch.futures.Future:
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = torch.futures.Future()
            has_ended = self._ended.is_set()
        if has_ended:
            self._complete(self._future)
        return self._future


class AllWork(Work):
    """Several works that one is to wait for."""

    def __init__(self, works: List[OneWork]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def get_future(self) -> torch.futures.Future:
        futures = [work.get_future() for work in self._works]
        return torch.futures.collect_all(futures).then(lambda all: [part for one in all.value() for part in one.value()])


@atexit.register
def _end_works() -> None:
    """A thread of the runtime must not come back to an interpreter that has ended."""
    for work in list(_started.values()):
        work.backend.cancel("the process ends")
    deadline = time.monotonic() + END_SECONDS
    while _started and time.monotonic() < deadline:
        time.sleep(0.005)


def started(work: OneWork) -> int:
    """The number under which `DONE` hears of the work's end."""
    number = next(_numbers)
    _started[number] = work
    return number


def is_under_way(backend: Any) -> bool:
    """Whether a call of this backend has not ended."""
    return any(work.backend is backend for work in list(_started.values()))


def _done(number: int, error: Optional[int]) -> None:
    try:
        _started[number].end(_operation.failure_of(error) if error else None)
    finally:
        del _started[number]


DONE = _operation.DONE(_done)
