"""The IANA time zones, carried inside the component: an instance has no files that `zoneinfo` could read."""

import io
import zoneinfo
from typing import Any, BinaryIO

from sandbox_runtime.guest.frozen_files import PACKAGES, FrozenFiles

_TZDATA = f"{PACKAGES}/tzdata"


def install(files: FrozenFiles) -> None:
    """Let `zoneinfo` find every zone of the tzdata package at once, without importing its folders."""
    names = frozenset(files.read(f"{_TZDATA}/zones").decode().split())

    def load_tzdata(key: str) -> BinaryIO:
        if key not in names:
            raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")
        return io.BytesIO(files.read(f"{_TZDATA}/zoneinfo/{key}"))

    common: Any = zoneinfo._common  # where both its implementations look
    common.load_tzdata = load_tzdata
    zoneinfo.available_timezones = lambda: set(names)
