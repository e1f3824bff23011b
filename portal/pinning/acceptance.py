"""What of the differences an operator accepts, and the lockfile that says so."""

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from manifests.lock import Lock, Pin, read_lock, write_lock
from portal.pinning.differences import HASH_DIGITS, Difference, hash_of

_HASHED: Final = re.compile(rf"(.*)@([0-9a-f]{{{HASH_DIGITS}}})", re.DOTALL)


def meant(found: Sequence[Difference], pattern: str) -> list[Difference]:
    """The differences that a pattern of `--accept` means.

    One that ends in `@` and a hash means nothing but what was shown with that hash: all that the pattern before it
    means, or one of those. So it is also where a tool's own name ends like that, and is thought of by a stranger.
    """
    hashed = _HASHED.fullmatch(pattern)
    if hashed is None:
        return [each for each in found if each.is_meant(pattern)]
    named = [each for each in found if each.is_meant(hashed[1])]
    return named if hash_of(named) == hashed[2] else [each for each in named if each.hash == hashed[2]]


def accept(path: Path, lock: Lock | None, chosen: Sequence[Difference]) -> bool:
    """Write the lockfile that accepts these beside what `lock` accepts, which is None if there was no such file.

    Nothing is written, and the answer is False, where the file is no longer what was read, or somebody else is just
    writing it: what they accepted would be lost.

    Raises:
        OSError, ManifestError: The file cannot be read or written.
    """
    with _locked(path.parent) as is_ours:
        if not is_ours or _digests(read_lock(path)) != _digests(lock):
            return False
        write_lock(path, _accepted(lock, chosen))
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Whether nobody else has the folder locked; of the file itself that says nothing, as another takes its place."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _is_locked(descriptor)
    finally:
        os.close(descriptor)


def _is_locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that cannot: then reading the file just before it is written has to do
        return True
    return True


def _digests(lock: Lock | None) -> dict[tuple[str, str | None], str | None] | None:
    return None if lock is None else {key: pin.digest for key, pin in lock.pins.items()}


def _accepted(lock: Lock | None, chosen: Sequence[Difference]) -> list[Pin]:
    pins = {} if lock is None else dict(lock.pins)
    for difference in chosen:
        pins.pop(difference.key, None)
        if difference.now is not None:
            pins[difference.key] = difference.now
    return list(pins.values())
