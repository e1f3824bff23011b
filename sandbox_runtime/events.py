"""What happens between a script and the world, one thing after the other: the body of a record.

What comes in (clocks, answers) decides what a run does; what goes out (calls, output) is how a repetition is
known to be one. Contents that nobody has to read again are kept as digests.
"""

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

from sandbox_runtime.frames import TrapCause
from sandbox_runtime.result import RunError

UNRECORDED = (TrapCause.UNRECORDED_READ, TrapCause.UNRECORDED_EXCHANGE)
"""How a run is ended that repeats another, where it would learn something that is not recorded."""
_SHOWN_CHARS = 200
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Parsed:
    """The script was parsed; `is_valid` says whether it can run."""

    is_valid: bool

    def __str__(self) -> str:
        return "a script that can run" if self.is_valid else "a script that cannot run"


@dataclass(frozen=True, slots=True)
class ClocksRead:
    """Looks at clocks, as tokens of trace.py: how often they showed the same, and by how much they moved."""

    tokens: str

    def __str__(self) -> str:
        looks = sum(1 if token[0] == "+" else int(token) for token in self.tokens.split(" "))
        return f"{looks:,} looks at a clock ({_shown(self.tokens)})"


@dataclass(frozen=True, slots=True)
class Sent:
    """What the script handed out: lines of "ID NAMESPACE.FUNCTION JSON", a call, or "ID", a cancellation."""

    lines: str

    def __str__(self) -> str:
        return f"calls: {_shown(self.lines)}"


@dataclass(frozen=True, slots=True)
class Answered:
    """What a wait brought: a JSON array of answers, or nothing when its time was up."""

    text: str

    def __str__(self) -> str:
        return f"answers: {_shown(self.text)}" if self.text else "a wait without answers"


@dataclass(frozen=True, slots=True)
class Printed:
    text: str

    def __str__(self) -> str:
        return f"printed: {_shown(self.text)}"


@dataclass(frozen=True, slots=True)
class Emitted:
    """A content block for the answer to the client."""

    digest: str

    def __str__(self) -> str:
        return f"a content block with the digest {self.digest}"


@dataclass(frozen=True, slots=True)
class Resumed:
    """Here the run was taken up again: from here on its wall clock goes on from `wall_ms`."""

    wall_ms: int

    def __str__(self) -> str:
        return "taken up again"


@dataclass(frozen=True, slots=True)
class Finished:
    """The script ended by itself; `digest` is of its value or error and its notices."""

    digest: str
    dropped_bytes: int

    def __str__(self) -> str:
        return f"the end, with a result of the digest {self.digest}"


@dataclass(frozen=True, slots=True)
class Trapped:
    """The engine ended the script."""

    cause: TrapCause
    dropped_bytes: int

    def __str__(self) -> str:
        match self.cause:
            case TrapCause.UNRECORDED_READ:
                return "a look at a clock"
            case TrapCause.UNRECORDED_EXCHANGE:
                return "a wait for answers"
        return f"the end, by {self.cause.name.lower()}"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run was ended from outside: by its time, its caller, or with its worker."""

    error: RunError
    dropped_bytes: int

    def __str__(self) -> str:
        return f"the end from outside: {self.error.code}"


Ending: TypeAlias = Finished | Trapped | Stopped
Event: TypeAlias = Parsed | ClocksRead | Sent | Answered | Printed | Emitted | Resumed | Ending


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def is_from_outside(ending: Ending | None) -> bool:
    """Whether chance decided where the run ended, so that a repetition has to be ended there too."""
    return isinstance(ending, Stopped) or (isinstance(ending, Trapped) and ending.cause == TrapCause.CPU)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}... ({len(text):,} characters)"
