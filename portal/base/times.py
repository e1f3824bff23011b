"""Writes times and durations for people and programs."""

import time
from datetime import UTC, datetime


def iso(at: float) -> str:
    """Seconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def age(at: float) -> str:
    """How long ago a time is, in its largest unit: `4 min`."""
    seconds = max(time.time() - at, 0)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    return next((f"{seconds // size:.0f} {unit}" for unit, size in units if seconds >= size), "0 s")
