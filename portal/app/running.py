"""The running portals of this user, over any transport.

Each keeps a locked file in the state folder. The lock ends with its process, however that ends.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Final

import structlog

from manifests.own_files import PRIVATE, UNFINISHED, locked, state_folder

log = structlog.get_logger()

_FOLDER: Final = "portals"


@dataclass(frozen=True)
class RunningPortal:
    """A running portal. `manifest` is the absolute path of its portal.yaml, as it was started; "" without one.

    It listens on `host` and `port`; "" and 0 over stdio. `hashes` are those of the files that it runs on.
    """

    pid: int
    manifest: str = ""
    host: str = ""
    port: int = 0
    hashes: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def announced(portal: RunningPortal) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Announce this portal until the context is left. The yielded function announces new hashes.

    A state folder that cannot be written is logged.
    """
    folder = state_folder(os.environ) / _FOLDER
    name = f"{portal.pid}-{secrets.token_hex(4)}.json"

    def announce(hashes: Mapping[str, str]) -> None:
        data = json.dumps(asdict(replace(portal, hashes=hashes))).encode()
        os.ftruncate(descriptor, os.pwrite(descriptor, data, 0))

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Locked before it gets its name, because an unlocked file counts as that of a portal that ended.
        descriptor = os.open(folder / f"{UNFINISHED}{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        announce(portal.hashes)
        (folder / f"{UNFINISHED}{name}").rename(folder / name)
    except OSError as error:
        log.warning("portal_not_announced", reason=error.strerror)
        yield lambda hashes: None
        return
    try:
        yield announce
    finally:
        (folder / name).unlink(missing_ok=True)
        os.close(descriptor)


def is_portal_port(port: int) -> bool:
    """Whether a portal of this user listens on this port, at any address of this machine. Blocks."""
    return any(portal.port == port for portal in running_portals())


def running_portals() -> list[RunningPortal]:
    """The running portals of this user, by process. Removes the files of those that were killed."""
    found = []
    for path in sorted((state_folder(os.environ) / _FOLDER).glob("[0-9]*.json")):
        with suppress(OSError, ValueError, TypeError), locked(path, fcntl.LOCK_SH) as is_left:
            if is_left:
                path.unlink(missing_ok=True)
            else:
                found.append(RunningPortal(**json.loads(path.read_bytes())))
    return found
