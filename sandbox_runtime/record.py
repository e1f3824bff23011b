"""A record: everything that decided what a run did, and enough of what it did to know it again."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from manifests.grants import Limits
from sandbox_runtime.events import Ending, Event, Finished, Stopped, Trapped
from sandbox_runtime.randomness import SEED_BYTES

_FIRST_MONOTONIC_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Origin:
    """What a run begins with besides its script.

    `component` is the sha256 of the guest component, in hex. `seed` decides every random number: who knows it knows
    also the secrets that the script drew. The clocks begin at `wall_ms` (since 1970) and `monotonic_ms`. `position`
    counts the runs of a session from 1; it is 0 where the run has an interpreter of its own.
    """

    component: str
    seed: bytes = field(repr=False)
    wall_ms: int
    monotonic_ms: int
    position: int

    @classmethod
    def now(cls, component: str, *, elapsed_ms: int = 0, position: int = 0) -> "Origin":
        """Chance and the present time; `elapsed_ms` is the age of the session."""
        monotonic_ms = _FIRST_MONOTONIC_MS + elapsed_ms
        return cls(component, os.urandom(SEED_BYTES), time.time_ns() // 1_000_000, monotonic_ms, position)

    def at_ns(self) -> int:
        """What this machine's monotonic clock showed when its wall clock showed `wall_ms`."""
        return time.monotonic_ns() - (time.time_ns() - self.wall_ms * 1_000_000)

    @property
    def is_first(self) -> bool:
        """Whether the interpreter is new."""
        return self.position <= 1


@dataclass(frozen=True, slots=True)
class Record:
    """One run. `replay` runs its script again from it; `record_json` makes it text and back.

    `settings` is what the guest was told when the script began, None if it was only parsed. A call could have
    `longest_call` bytes, which what the run was granted may make more than its limits say. `places` is what
    `where` said of limits that came up. Without an `ending` the record is the beginning of a run.

    It holds what the script was given and what its calls returned: keep it as safe as these.
    """

    origin: Origin
    script: str = field(repr=False)
    namespaces: tuple[str, ...]
    limits: Limits
    longest_call: int
    places: Mapping[str, str]
    settings: str | None = field(repr=False)
    events: tuple[Event, ...] = field(repr=False)

    @property
    def ending(self) -> Ending | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Finished | Trapped | Stopped) else None

    @property
    def body(self) -> tuple[Event, ...]:
        """The events before the ending."""
        return self.events if self.ending is None else self.events[:-1]

    def place(self, limit: str) -> str:
        """Where a limit was set, as far as it came up."""
        return self.places.get(limit, "as recorded")

    def until(self, index: int) -> "Record":
        """The record of the same run as it was before event `index`."""
        return replace(self, events=self.events[:index])
