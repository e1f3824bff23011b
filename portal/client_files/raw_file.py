"""A client's file as bytes: read with a bound, and replaced only if nobody else has written it meanwhile."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manifests.whole_file import write_whole
from portal.client_files.errors import ChangedFileError, ClientFileError

MAX_BYTES: Final = 16 * 1024 * 1024
"""Claude Code keeps histories in the same file as its servers."""


@dataclass(frozen=True)
class RawFile:
    """What a file held when it was read; `content` is None if there was none."""

    path: Path
    content: bytes | None
    mode: int = 0o600

    def text(self) -> str:
        """
        Raises:
            ClientFileError: It is not UTF-8.
        """
        content = self.content or b""
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ClientFileError(self.path, "not UTF-8", content.count(b"\n", 0, error.start) + 1) from None

    def require_unchanged(self) -> None:
        """
        Raises:
            ChangedFileError: It is not as it was when it was read.
        """
        if read_raw(self.path).content != self.content:
            raise ChangedFileError(self.path, "somebody else has just written it; it was left as it is")

    def replace(self, content: bytes | None, mode: int | None = None) -> None:
        """Write the file anew, or remove it for None. Its mode stays unless another is given, for root its owner, and a
        link stays one.

        Raises:
            ChangedFileError: It is not as it was when it was read.
            ClientFileError: It cannot be written; it is as it was.
        """
        self.require_unchanged()
        if self.content is not None and not self.mode & 0o222:
            raise ClientFileError(self.path, "is read-only: make it writable if it is to be changed")
        target = Path(os.path.realpath(self.path))
        try:
            if content is None:
                target.unlink(missing_ok=True)
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            owner = target.stat() if self.content is not None and os.geteuid() == 0 else None

            def prepare(new: int) -> None:
                if owner is not None:
                    os.fchown(new, owner.st_uid, owner.st_gid)
                os.fchmod(new, self.mode if mode is None else mode)

            write_whole(target, content, prepare=prepare)
        except OSError as error:
            raise ClientFileError(
                self.path, f"cannot be written: {error.strerror or 'unknown reason'}"
            ) from None


def read_raw(path: Path) -> RawFile:
    """
    Raises:
        ClientFileError: It is there and cannot be read, is no file, or is larger than MAX_BYTES.
    """
    try:
        # Whoever opened a pipe in its place would wait for a writer that never comes.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ClientFileError(path, "is no file")
            content = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return RawFile(path, None)
    except OSError as error:
        raise ClientFileError(path, f"cannot be read: {error.strerror or 'unknown reason'}") from None
    if len(content) > MAX_BYTES:
        raise ClientFileError(path, f"larger than {MAX_BYTES} bytes")
    return RawFile(path, content, stat.S_IMODE(mode))
