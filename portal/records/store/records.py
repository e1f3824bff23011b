"""The rows of the store of runs, and their encryption."""

import base64
import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal, TypeAlias, get_args

from cryptography.fernet import Fernet, InvalidToken

from manifests.json_value import Json
from portal.base.errors import PortalError

RunState: TypeAlias = Literal["running", "waiting", "ok", "error", "refused", "cancelled", "expired", "stuck"]
"""The state of a run, and the status of its answer. running: a portal runs it, or will resume it; waiting: suspended,
for a person, a time or an event; ok: the script finished; error: it started and failed; refused: it did not run;
cancelled: by a person or its client; expired: older than `max_age_days`; stuck: its replay differs from its journal.
"""

MAX_OPEN_RUNS: Final = 10_000
"""Open runs of one owner. One more is refused."""

OPEN: Final = ("running", "waiting")
"""The states of open runs, which have not ended."""

CallKind: TypeAlias = Literal["call", "ask", "approve", "sleep", "event"]
"""What a call waits for. ask: a person, by a rule of the manifest; approve: a person, at the script's request; call:
nothing.
"""

ASKING: Final[tuple[CallKind, ...]] = ("ask", "approve")
"""The kinds of calls that wait for a person."""

CallRowState: TypeAlias = Literal["intended", "waiting", "approved", "denied", "delivered", "due", "done"]
"""intended: it may have been sent; waiting: undecided; approved and denied: by a person; delivered: its event arrived;
due: its time has come; done: it has an outcome."""


CALL_LIFE: Final[dict[CallRowState, tuple[CallKind, ...]]] = {
    "approved": ASKING,  # by a person, as is the next
    "denied": ASKING,
    "delivered": ("event",),  # by anyone who knows its URL
    "due": get_args(CallKind),  # by the clock
    "done": get_args(CallKind),  # by the script, which no longer waits when the run is suspended
}
"""What can happen to a call that waits, and to which kinds. Only one of them does: the first decision wins. A call that
is sent after it is `intended`, and one that has an outcome is `done`, from whatever state."""


def still_waits(for_state: CallRowState) -> str:
    """The condition in SQL under which a call can get this state."""
    return f"state = 'waiting' AND kind IN ({', '.join(map(repr, CALL_LIFE[for_state]))})"


def short_id(full: str) -> str:
    """The first 8 digits of an id. A session id that names the replica which holds it keeps that name."""
    home, dot, own = full.rpartition(".")
    return home + dot + own.rpartition("_")[2][:8]


def ambiguous(what: str, written: str, ids: Iterable[str]) -> tuple[str, str, str]:
    """The code, message and hint for an ambiguous prefix of an id. The message lists how much distinguishes the ids."""
    digits = sorted(each.rpartition("_")[2] for each in ids)
    enough = next(n for n in count(1) if len({each[:n] for each in digits}) == len(digits))
    listed = ", ".join(each[:enough] for each in digits)
    return f"ambiguous_{what}", f"several {what}s begin with {written!r}: {listed}", "Write more of it."


class StoreError(PortalError):
    """The store of runs cannot be used. The message says why, and what to do."""


class DatabaseError(StoreError):
    """A statement failed. With `spoils_all`, the rest of its transaction is not written either.

    `is_in_doubt`: the connection was lost during the commit, and it is unknown whether that succeeded.
    """

    def __init__(self, message: str, *, spoils_all: bool = True, is_in_doubt: bool = False) -> None:
        super().__init__(message)
        self.spoils_all = spoils_all
        self.is_in_doubt = is_in_doubt


class BusyError(DatabaseError):
    """Another process writes, and holds the lock. Nothing was done."""


class DamagedRowError(StoreError):
    """A row is damaged, or was written with another key."""


class OwnLimitError(StoreError):
    """The owner is over a limit. `code` is stable, and the hint says what to do."""

    code: str
    hint: str


class TooManyRunsError(OwnLimitError):
    code = "too_many_runs"
    hint = "Cancel some, or wait for them."


class QuotaError(OwnLimitError):
    code = "quota_exceeded"
    hint = "Nothing was kept. What has ended is deleted after runs.keep_days. Ask the operator for more."


class FencedError(Exception):
    """Another portal has taken the run over, or it was ended. Nothing was written."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run. Times are seconds since 1970; `updated` is that of its state, and of its questions to
    people. `title` is its script's first line.
    """

    id: str
    owner: str
    state: RunState
    epoch: int
    began: float
    updated: float
    expires: float
    wake_at: float | None = None
    ended: float | None = None
    parent: str | None = None
    title: str = ""
    component: str = ""
    profile: str | None = None
    holder: str = ""
    """The id of the portal that runs it, or ran it last."""

    @property
    def told(self) -> RunState:
        """The state for people. A waiting run that is due at once counts as running: it resumes in a moment."""
        return "running" if self.state == "waiting" and self.wake_at == 0 else self.state


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call that the store has to know: one that may not be repeated, or one that waits.

    `digest` is the sha256 of the tool's definition that a person approves, `arguments_sha256` that of the arguments.
    `shown` is JSON for the person who decides, `decision` is the decision as JSON, `outcome` the outcome as JSON, once
    there is one. `name` is the name of the event.
    """

    run: str
    seq: int
    kind: CallKind
    function: str
    state: CallRowState
    digest: str = ""
    arguments_sha256: str = ""
    name: str = ""
    due_at: float | None = None
    decided_by: str = ""
    shown: bytes = b""
    decision: bytes | None = None
    outcome: bytes | None = None

    @property
    def asks(self) -> bool:
        """Whether it waits for a person."""
        return self.state == "waiting" and self.kind in ASKING


@dataclass(frozen=True, slots=True)
class LogRow:
    """One event in the life of a run, for those who watch it. `n` grows over all runs of the store."""

    n: int
    run: str
    at: float
    kind: str
    seq: int = 0
    function: str = ""

    @property
    def call(self) -> dict[str, Json]:
        """`{seq?, function?}`: `intended` and `waiting` name the function."""
        return {name: value for name, value in (("seq", self.seq), ("function", self.function)) if value}


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Everything that is needed to resume a run. `chunks` are the parts of its journal, in order."""

    row: RunRow
    head: bytes
    chunks: tuple[bytes, ...]
    calls: tuple[CallRow, ...]
    answer: bytes | None


class Sealed(bytes):
    """Bytes that are already closed by a Seal."""


MAX_UNPACKED_BYTES: Final = 2_000
"""Shorter contents are not compressed: compressing takes longer than writing them."""


def fernet_of(key: str, purpose: str) -> Fernet:
    """A Fernet with a key derived from `runs.key` for one purpose. It cannot open what another purpose encrypted."""
    digest = hashlib.sha256(f"mcp-code-portal {purpose}\n{key}".encode()).digest()
    return Fernet(base64.urlsafe_b64encode(digest))


class Seal:
    """Compresses what is written, and encrypts it if there is a key."""

    def __init__(self, key: str | None) -> None:
        self._fernet = None if key is None else fernet_of(key, "runs.key")
        self.has_key = key is not None

    def close(self, content: bytes) -> Sealed:
        if isinstance(content, Sealed):
            return content
        is_long = len(content) > MAX_UNPACKED_BYTES
        packed = b"z" + zlib.compress(content, 1) if is_long else b"-" + content
        return Sealed(packed if self._fernet is None else self._fernet.encrypt(packed))

    def open(self, content: bytes) -> bytes:
        """Raises DamagedRowError."""
        try:
            packed = content if self._fernet is None else self._fernet.decrypt(content)
            if packed[:1] not in (b"z", b"-"):
                raise InvalidToken
            return zlib.decompress(packed[1:]) if packed[:1] == b"z" else packed[1:]
        except (InvalidToken, zlib.error):
            raise DamagedRowError(
                "a row of the store of runs is damaged, or was written with another runs.key"
            ) from None
