from types import CodeType
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, final

__all__ = [
    "Block",
    "Communicator",
    "GROUP_KINDS",
    "Layout",
    "PRESETS",
    "Work",
    "World",
    "__version__",
    "forked",
    "group",
    "join",
    "join_environment",
    "layout",
    "matrix",
    "preset",
    "table",
    "threads",
]
__version__: str
GROUP_KINDS: List[str]
PRESETS: List[str]

@final
class Block:
    @property
    def address(self) -> int: ...
    @property
    def length(self) -> int: ...

@final
class World:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def group(self, name: str, ranks: List[int]) -> Communicator: ...
    def alloc(self, bytes: int) -> Block: ...
    def leave(self) -> None: ...

@final
class Work:
    def wait(self, timeout: Optional[float] = None) -> Any: ...
    def is_done(self) -> bool: ...

@final
class Communicator:
    @property
    def name(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def members(self) -> List[int]: ...
    deadline: float
    @property
    def failure(self) -> Any: ...
    @property
    def last_algorithm(self) -> Optional[str]: ...
    @property
    def shares_memory(self) -> bool: ...
    def set_object_bytes_max(self, bytes: int) -> None: ...
    def call(
        self,
        collective: str,
        sendbuf: Any,
        recvbuf: Any,
        op: str,
        root: int,
        counts: Optional[Sequence[int]],
        recv_counts: Optional[Sequence[int]],
        is_async: bool,
        code: CodeType,
        line: int,
    ) -> Any: ...
    def batch(
        self, messages: List[Tuple[bool, Any, int]], is_async: bool, code: CodeType, line: int
    ) -> Any: ...
    def coalesced(self, buffers: List[Any], op: str, is_async: bool, code: CodeType, line: int) -> Any: ...
    def objects(
        self,
        collective: str,
        objects: Sequence[Sequence[Any]],
        root: int,
        is_async: bool,
        code: CodeType,
        line: int,
    ) -> Any: ...
    def cancel(self, why: str) -> None: ...
    def destroy(self) -> None: ...

@final
class Layout:
    @property
    def world_size(self) -> int: ...
    @property
    def sizes(self) -> Dict[str, int]: ...
    @property
    def remark(self) -> str: ...
    @property
    def kinds(self) -> List[str]: ...
    def groups(self, kind: str) -> List[List[int]]: ...
    def group_of(self, kind: str, rank: int) -> Optional[List[int]]: ...

def join(
    rank: int,
    world_size: int,
    secret: bytes,
    endpoint: Optional[str],
    bind: Optional[str],
    tell: Optional[Callable[[str], Any]],
    deadline: Optional[float],
    bring_up: Optional[float],
    source: str,
) -> World: ...
def join_environment(deadline: Optional[float]) -> World: ...
def threads(
    count: int,
    body: Callable[[World, Callable[[Any, Optional[BaseException]], None]], None],
    deadline: Optional[float],
) -> List[Any]: ...
def forked() -> None: ...
def layout(
    world: int,
    tp: int,
    cp: int,
    pp: int,
    ep: int,
    etp: Optional[int],
    dp: Optional[int],
    order: Optional[str],
) -> Layout: ...
def matrix(name: str) -> Layout: ...
def preset(name: str) -> List[Tuple[str, Layout]]: ...
def table() -> Any: ...
def group(comm: Communicator) -> int: ...
