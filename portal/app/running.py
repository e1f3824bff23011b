"""The running portals of this user, over any transport, and how to send a request to one.

Each keeps a locked file in the state folder. The lock ends with its process, however that ends. Beside it is the socket
on which the portal answers HTTP (`portal.app.live`).
"""

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from manifests.own_files import PRIVATE, UNFINISHED, locked, state_folder
from portal.app.peer import is_descendant

PORTALS: Final = "portals"  # in the state folder


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
    key: str = field(default_factory=lambda: secrets.token_hex(4), compare=False)
    """Part of its name, because another portal had or will have the same pid."""

    @property
    def name(self) -> str:
        """`5120-9f3a2b1c`: the name of its files, and of the portal in addresses."""
        return f"{self.pid}-{self.key}"

    @property
    def transport(self) -> str:
        """`stdio`, or `http 127.0.0.1:8790`."""
        return f"http {self.host}:{self.port}" if self.port else "stdio"

    @property
    def socket(self) -> Path:
        return state_folder(os.environ) / PORTALS / f"{self.name}.sock"


@contextmanager
def announced(portal: RunningPortal) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Announce this portal until the context is left. The yielded function announces new hashes.

    A state folder that cannot be written is logged.
    """
    folder, name = portal.socket.parent, f"{portal.name}.json"

    def announce(hashes: Mapping[str, str]) -> None:
        told = asdict(replace(portal, hashes=hashes))
        del told["key"]  # the file's name has it, and earlier versions refuse a file with more than they know
        os.ftruncate(descriptor, os.pwrite(descriptor, json.dumps(told).encode(), 0))

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Locked before it gets its name, because an unlocked file counts as that of a portal that ended.
        descriptor = os.open(folder / f"{UNFINISHED}{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        announce(portal.hashes)
        (folder / f"{UNFINISHED}{name}").rename(folder / name)
    except OSError as error:
        import structlog  # the command `status` has no time to import it

        structlog.get_logger().warning("portal_not_announced", reason=error.strerror)
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
    for path in sorted((state_folder(os.environ) / PORTALS).glob("[0-9]*.json")):
        with suppress(OSError, ValueError, TypeError), locked(path, fcntl.LOCK_SH) as is_left:
            if is_left:
                path.with_suffix(".sock").unlink(missing_ok=True)
                path.unlink(missing_ok=True)
            else:
                key = path.stem.partition("-")[2]
                found.append(RunningPortal(**json.loads(path.read_bytes()), key=key))
    return found


def outer_portals() -> list[RunningPortal]:
    """The running portals that none of them started: an upstream may announce itself as one. Blocks."""
    portals = running_portals()
    pids = [portal.pid for portal in portals]
    return [portal for portal in portals if not is_descendant(portal.pid, pids)]


@contextmanager
def address(path: Path) -> Iterator[str]:
    """The address of a socket with this path, valid within the context.

    An address has at most 107 bytes, so Linux goes through the folder. Elsewhere a longer path is refused when it is
    used (103 bytes on macOS). Raises OSError: the folder does not exist.
    """
    if not os.path.isdir("/proc/self/fd"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
