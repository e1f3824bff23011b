"""An attack, what must become of it, and its harmless twin: one row of the tables in this folder."""

from dataclasses import dataclass, field
from typing import Any

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.result import RunResult
from tests.sandbox_runtime.running import where

REACHED = "reached the attacking line"
"""What an attack prints right before it attacks: without it on stdout, the attack proves nothing."""


_OWN_CODES = ("script_error", "script_exit", "memory_limit", "cpu_limit", "result_limit", "result_not_json")


@dataclass(frozen=True)
class Fate:
    """How an attack ends: with an error of this code whose message begins so and has these words, or with a value."""

    code: str | None = None
    begins: str = ""
    words: tuple[str, ...] = ()
    value: Json = None
    limits: dict[str, Any] = field(default_factory=dict)
    is_open: bool = False

    def check(self, result: RunResult) -> None:
        error = result.error
        if self.is_open:
            assert error is None or error.code in _OWN_CODES, error
            return
        if self.code is None:
            assert (error, result.value) == (None, self.value)
            return
        assert error is not None, result.value
        assert error.code == self.code, error
        assert error.message.startswith(self.begins), error
        for word in self.words:
            assert word in error.message, error


def raises(kind: str) -> Fate:
    """The script gets an exception that it could catch."""
    return Fate("script_error", kind)


def breaks() -> Fate:
    """The instance breaks down, and nothing else does."""
    return Fate("script_error", "SystemError: the interpreter broke down")


def ruins_itself() -> Fate:
    """Nobody can say what an interpreter does that overwrote itself; whatever it is, it happens to itself only."""
    return Fate(is_open=True)


def exhausts_stack() -> Fate:
    return Fate("script_error", "RecursionError")


def yields(value: Json) -> Fate:
    """The attack goes through, and finds nothing."""
    return Fate(value=value)


def exceeds(key: str, limit: float, code: str = "", **others: Any) -> Fate:
    """A limit stops it, and is named with its value and the place where it is set."""
    words = (key, f"{limit:,}", where(key))
    return Fate(code or f"{key.rpartition('_')[0]}_limit", words=words, limits={key: limit, **others})


def loses_worker() -> Fate:
    """It breaks the rules of the channel, which costs it its worker."""
    return Fate("worker_lost")


@dataclass(frozen=True)
class Attack:
    """`setup` comes first, for the attack and for its twin. The twin ends with `value`."""

    name: str
    attack: str
    fate: Fate
    twin: str
    value: Json
    setup: str = ""

    @property
    def script(self) -> str:
        return f"{self.setup}\nprint({REACHED!r}, flush=True)\n{self.attack}"

    @property
    def harmless(self) -> str:
        return f"{self.setup}\n{self.twin}"

    @property
    def limits(self) -> Limits:
        return Limits(**{"wall_seconds": 20.0, "cpu_seconds": 10.0, **self.fate.limits})

    def __str__(self) -> str:
        return self.name
