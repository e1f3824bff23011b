"""What clients' files were before the portal was put into them, kept until it is taken out again."""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from manifests.json_value import Json
from manifests.own_folders import state_folder
from manifests.whole_file import write_whole
from portal.client_files.errors import ClientFileError
from portal.client_files.places import Place
from portal.client_files.raw_file import RawFile, read_raw

_FORMAT: Final = 1

LOCK_SECONDS: Final = 5.0
"""So long somebody who changes a client's file waits for somebody else who does: that takes milliseconds."""

_PAUSE_SECONDS: Final = 0.02


@dataclass(frozen=True)
class TakenOut:
    """A server that stood in `container` of the file, and how it was written there."""

    container: tuple[str, ...]
    name: str
    text: str


@dataclass(frozen=True)
class Record:
    """What was done to a file: `after` is the digest of what it became, `name` that of the portal's entry, `manifest`
    the path with which the entry starts the portal, "" in records from before it was kept.
    """

    path: str
    was_there: bool
    mode: int
    after: str
    name: str
    taken_out: tuple[TakenOut, ...]
    manifest: str = ""


class Backups:
    """A record and a copy for each file, for their owner alone: they hold what the file held, secrets too."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._folder = state_folder(environ) / "clients"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else puts a portal into a client's file, or takes it out again.

        Raises:
            ClientFileError: Somebody else does, and does not end; or there can be no folder for backups.
        """
        with self._explained():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock(folder)
            yield
        finally:
            os.close(folder)

    def copy_path(self, place: Place) -> Path:
        return self._path(place).with_suffix(".backup")

    def record(self, place: Place) -> Record | None:
        """
        Raises:
            ClientFileError: There is one that cannot be read or understood.
        """
        path = self._path(place)
        content = read_raw(path).content
        if content is None:
            return None
        try:
            data: dict[str, Json] = json.loads(content)
            if data.pop("format") != _FORMAT:
                raise ValueError
            taken_out = [
                TakenOut(tuple(each["container"]), each["name"], each["text"])
                for each in data.pop("taken_out")
            ]
            return Record(**data, taken_out=tuple(taken_out))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ClientFileError(path, "is not what was written here") from None

    def before(self, place: Place) -> bytes | None:
        """
        Raises:
            ClientFileError: It cannot be read.
        """
        return read_raw(self.copy_path(place)).content

    def keep(self, place: Place, file: RawFile, record: Record) -> None:
        """
        Raises:
            ClientFileError: They cannot be written.
        """
        data = {"format": _FORMAT, **asdict(record)}
        with self._explained():
            if file.content is not None:
                write_whole(self.copy_path(place), file.content)
            write_whole(
                self._path(place), json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")
            )

    def forget(self, place: Place) -> None:
        """
        Raises:
            ClientFileError: They cannot be removed.
        """
        with self._explained():
            self._path(place).unlink(missing_ok=True)
            self.copy_path(place).unlink(missing_ok=True)

    def set_aside(self, place: Place) -> Path | None:
        """Forget the record, and keep the copy, if there is one, where no later one comes; that is returned.

        Raises:
            ClientFileError: They cannot be renamed or removed.
        """
        copy = self.copy_path(place)
        kept = copy.with_suffix(f".{datetime.now(UTC):%Y%m%dT%H%M%S%f}.backup")
        with self._explained():
            is_there = copy.exists()
            if is_there:
                copy.replace(kept)
            self._path(place).unlink(missing_ok=True)
        return kept if is_there else None

    def _path(self, place: Place) -> Path:
        fingerprint = hashlib.sha256(str(place.path).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return self._folder / f"{place.name}-{fingerprint}.json"

    def _lock(self, folder: int) -> None:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    told = "somebody else is putting a portal in or taking one out, and does not end"
                    raise ClientFileError(self._folder, told) from None
                time.sleep(_PAUSE_SECONDS)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            told = f"a backup cannot be kept or removed: {error.strerror or 'unknown reason'}"
            raise ClientFileError(self._folder, told) from None


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
