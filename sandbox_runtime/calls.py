"""The sandbox's port: a call goes out, an outcome comes back. Whoever runs a script supplies it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from manifests.json_value import Json


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call a running script makes.

    `seq` counts the calls of one run from 1, in the order they reached the host. `function` is what the
    script wrote, "namespace.name"; like `arguments` it comes from the guest and is not to be believed.
    """

    seq: int
    function: str
    arguments: dict[str, Json]


@dataclass(frozen=True, slots=True)
class CallError:
    """Why a call has no value; the script gets it as a `ToolError` with the same `code` and `hint`."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to: a value, or an error.

    Whoever has the value as JSON in UTF-8 gives that as `text`, instead of having it written in one go.
    """

    value: Json = None
    error: CallError | None = None
    text: bytes | None = None


CallPort: TypeAlias = Callable[[ToolCall], Awaitable[Outcome]]
"""Answers one call. Cancelled, and awaited to its end, when the run ends first; what it raises ends the run."""


class CallObserver(Protocol):
    """Hears of every call, also of those that the port never sees."""

    def open(self, seq: int, function: str) -> None:
        """The script made a call. It may have to wait for its turn, and the run may end before that."""

    def withhold(self, seq: int, error: CallError) -> None:
        """A limit kept the call from the port, or its outcome from the script."""


class NoObserver:
    """Listens to nothing."""

    def open(self, seq: int, function: str) -> None:
        """Pass over it."""

    def withhold(self, seq: int, error: CallError) -> None:
        """Pass over it."""
