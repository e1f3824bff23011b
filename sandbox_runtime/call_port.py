"""The port for a script's calls, supplied by the code that runs the script."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from manifests.json_value import Json


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a running script.

    `seq` counts the calls of one run from 1, in the order of their arrival at the host. `function` is
    "namespace.name"; like `arguments` it comes from the guest and is untrusted.
    """

    seq: int
    function: str
    arguments: dict[str, Json]


@dataclass(frozen=True, slots=True)
class CallError:
    """The error of a call. The script gets it as a `ToolError` with the same `code` and `hint`."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: a value, or an error.

    `text` is the value as JSON in UTF-8, if that exists already, to save serializing it. `content` has all blocks that
    the upstream sent, None if the value contains them all; `beside` lists those that it lacks. A block whose text is
    None has the value's text (`portal.library.results`). `data` is an error's data for programs.
    """

    value: Json = None
    error: CallError | None = None
    text: bytes | None = None
    content: list[Json] | None = None
    beside: Sequence[int] = ()
    data: Json = None


GIVEN_UP: Final = "the script gave the call up"
"""The message with which a call is cancelled that the script no longer waits for. Its run goes on."""

CallPort: TypeAlias = Callable[[ToolCall], Awaitable[Outcome]]
"""Answers one call. It is cancelled and awaited if the run ends first. Its exceptions end the run."""


class CallObserver(Protocol):
    """Observes every call, including those that never reach the port."""

    def open(self, seq: int, function: str) -> None:
        """The script made a call. It may still have to wait, and the run may end before it starts."""

    def withhold(self, seq: int, error: CallError) -> None:
        """A limit kept the call from the port, or the outcome from the script."""
