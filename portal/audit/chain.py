"""The lines of an audit log. Each holds the hash of the one before it, so that none can be changed, taken out or moved
without another one betraying it.

A line is JSON in ASCII, so that no text in it breaks a line or steers a terminal. Its hash is of its own bytes up to
the hash itself: whoever verifies needs to agree with us about bytes only, not about how JSON is written.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from manifests.json_value import Json

MAX_LINE_BYTES: Final = 16 * 1024
"""A longer line is none of ours."""

_LINE: Final = re.compile(
    rb'(\{"audit": 1, "seq": ([1-9][0-9]{0,17}), "previous": "([0-9a-f]{64})", .*), "hash": "([0-9a-f]{64})"\}'
)


@dataclass(frozen=True)
class Head:
    """A line, as the next one names it: its number, counted from 1 over all files, and its hash."""

    seq: int
    digest: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"

    @classmethod
    def of(cls, text: str) -> "Head":
        """Read what `str` writes.

        Raises:
            ValueError: The text is nothing of the kind.
        """
        found = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text)
        if found is None:
            raise ValueError(f"{text!r} is no head: it looks like 12:{'0' * 64}")
        return cls(int(found[1]), found[2])


START: Final = Head(0, "0" * 64)
"""What comes before the first line of all."""


@dataclass(frozen=True)
class Line:
    """A line that was read. `is_whole` says that its hash is that of its bytes."""

    head: Head
    previous: str
    is_whole: bool


def linked(previous: Head, event: Mapping[str, Json]) -> tuple[bytes, Head]:
    """The line of an event, with its line feed, and the head that it makes."""
    whole = {"audit": 1, "seq": previous.seq + 1, "previous": previous.digest, **event}
    body = json.dumps(whole)[:-1].encode()
    digest = hashlib.sha256(body).hexdigest()
    return body + f', "hash": "{digest}"}}\n'.encode(), Head(previous.seq + 1, digest)


def read_line(line: bytes) -> Line | None:
    """What a line, without its line feed, says of itself; None if it is none of ours."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    is_whole = hashlib.sha256(found[1]).hexdigest() == found[4].decode()
    return Line(Head(int(found[2]), found[4].decode()), found[3].decode(), is_whole)
