"""The IANA time zones, carried inside the component: an instance has no files that `zoneinfo` could read."""

import importlib.resources
import io
import zoneinfo
from typing import Any, BinaryIO


def install() -> None:
    """Read every zone of the tzdata package; runs while the component is built."""
    package = importlib.resources.files("tzdata")
    names = package.joinpath("zones").read_text().split()
    zones = {name: package.joinpath("zoneinfo", *name.split("/")).read_bytes() for name in names}

    def load_tzdata(key: str) -> BinaryIO:
        if key not in zones:
            raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")
        return io.BytesIO(zones[key])

    common: Any = zoneinfo._common  # where both its implementations look
    common.load_tzdata = load_tzdata
    zoneinfo.available_timezones = lambda: set(zones)
