"""Why calls fail: one class of exception for each class of verdict.

`CommError` is the base of all. `error.verdict` has the verdict as fields, where there is one: who, what, where and since
when, the same on all ranks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple, Type


@dataclass(frozen=True)
class Verdict:
    """What went wrong between ranks, the same on every rank that it concerns."""

    #: The class, such as "PEER_DEAD"; docs/verdicts.md has them all.
    cls: str
    #: World ranks that are to blame.
    blamed: Tuple[int, ...]
    #: Those ranks: host, process, groups.
    who: str
    #: The call that could not go on.
    what: str
    #: What those ranks do instead, or how they ended.
    where: str
    #: Since when, in milliseconds since 1970.
    since_unix_ms: int
    #: How long that was when the verdict was given, in milliseconds.
    elapsed_ms: int
    #: "certain" or "likely".
    confidence: str
    #: What it rests on.
    evidence: Tuple[str, ...]
    #: Who waits, and where.
    others: str
    #: What to do next.
    next: str
    #: The whole as the one line that every rank prints.
    line: str = field(repr=False)

    def __str__(self) -> str:
        return self.line


class CommError(RuntimeError):
    """A call between ranks has failed."""

    #: What the error is about, such as "PEER_DEAD".
    cls: str = ""
    verdict: Optional[Verdict] = None
    #: The group, the rank that reports, the collective and its number on the group; None outside of calls.
    group: Optional[str] = None
    rank: Optional[int] = None
    collective: Optional[str] = None
    seq: Optional[int] = None
    #: Whether the group can be used after it.
    recoverable: bool = False
    #: One sentence on what to do.
    help: str = ""

    def __reduce__(self) -> Any:
        return _restore, (type(self), self.args, self.__dict__.copy())


class RendezvousError(CommError):
    """The ranks did not find each other, or contradict each other before they have a world."""


class LaunchError(CommError):
    """Nothing says who this process is, or what says it contradicts itself."""


class PeerDead(CommError):
    """A rank exited or was killed."""


class PeerFrozen(CommError):
    """A rank's process exists but does not run."""


class NotJoined(CommError):
    """A rank runs, but did not enter the call that others wait in, or left before it."""


class LinkError(CommError):
    """Two ranks live, the path between them is broken."""


class Deadlock(CommError):
    """Ranks wait for each other in a circle."""


class Mismatch(CommError):
    """Ranks made different calls, or different groups."""


class DataError(CommError):
    """The bytes of a peer are wrong."""


class ResourceError(CommError):
    """A rank lacks memory, descriptors or another limit."""


class InvalidArgument(CommError, ValueError):
    """The arguments of this call cannot be served; nothing was sent."""


class Unsupported(CommError, NotImplementedError):
    """What was asked for is not carried."""


class Cancelled(CommError):
    """This process has cancelled the call itself."""


class InternalError(CommError):
    """Evidence is missing."""


_CLASSES: Dict[str, Type[CommError]] = {
    "RDV_MISSING": RendezvousError,
    "RDV_CONFLICT": RendezvousError,
    "RDV_UNREACHABLE": RendezvousError,
    "LAUNCH": LaunchError,
    "PEER_DEAD": PeerDead,
    "PEER_FROZEN": PeerFrozen,
    "NOT_JOINED": NotJoined,
    "LINK": LinkError,
    "DEADLOCK": Deadlock,
    "MISMATCH": Mismatch,
    "DATA": DataError,
    "RESOURCE": ResourceError,
    "INTERNAL": InternalError,
    "INVALID_ARGUMENT": InvalidArgument,
    "UNSUPPORTED": Unsupported,
    "CANCELLED": Cancelled,
}


def _restore(cls: Type[CommError], args: Tuple[Any, ...], fields: Dict[str, Any]) -> CommError:
    error = cls(*args)
    error.__dict__.update(fields)
    return error


def _make(cls: str, text: str, verdict: Optional[Tuple[str, str]], fields: Dict[str, Any]) -> CommError:
    """Called by the extension module."""
    error = _CLASSES.get(cls, InternalError)(text)
    error.cls = cls
    error.__dict__.update(fields)
    if verdict is not None:
        known, line = json.loads(verdict[0]), verdict[1]
        evidence: List[str] = known["evidence"]
        error.verdict = Verdict(
            cls=known["class"],
            blamed=tuple(known["blamed"]),
            who=known["who"],
            what=known["what"],
            where=known["where"],
            since_unix_ms=known["since_unix_ms"],
            elapsed_ms=known["elapsed_ms"],
            confidence=known["confidence"],
            evidence=tuple(evidence),
            others=known["others"],
            next=known["next"],
            line=line,
        )
    return error
