"""Files of the workspace: read as a whole when they are opened, given back when they are flushed or closed."""

import base64
import errno
import io
import operator
import os
from typing import Any

from sandbox_runtime.guest.workspace import Workspace

_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR


class WorkspaceFile(io.RawIOBase):
    """An open file. What is written is kept here until `save`, which every flush and every close calls."""

    def __init__(self, workspace: Workspace, shown: Any, place: str, flags: int) -> None:
        """Open it as `os.open` would with `flags`.

        Raises:
            OSError: As `os.open` would.
        """
        super().__init__()
        access = flags & _ACCESS
        self._descriptor = 0
        self.name = shown
        self.place: str | None = place
        """None once it was removed: what is written then is kept nowhere."""
        self._workspace = workspace
        self._is_readable = access != os.O_WRONLY
        self._is_writable = access != os.O_RDONLY
        self._is_appending = bool(flags & os.O_APPEND)
        self._is_new = bool(flags & os.O_EXCL)
        self._hidden = 0
        """Bytes at the beginning that are not kept here: what only adds to a file need not read it."""
        self._content = bytearray()
        self._saved: int | None = None
        """Of the content so many bytes at the beginning are the host's; None if it has others there."""
        self._is_dirty = False
        self.changed_ns = 0
        """When the host's file was changed last, as far as is known here."""
        self._position = 0
        self._open(place, flags)
        if self._is_appending:
            self._position = self.size()
        self._descriptor = workspace.files.add(self)

    closefd = True
    _blksize = io.DEFAULT_BUFFER_SIZE

    @property
    def mode(self) -> str:
        if self._is_new or self._is_appending:
            letters = "xb" if self._is_new else "ab"
            return letters + "+" * self._is_readable
        if self._is_readable:
            return "rb+" if self._is_writable else "rb"
        return "wb"

    def readable(self) -> bool:
        return self._is_readable

    def writable(self) -> bool:
        return self._is_writable

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._hidden + len(self._content)

    def readinto(self, buffer: Any) -> int:
        self._check(self._is_readable, "reading")
        with memoryview(buffer).cast("B") as target:
            part = self._content[self._position : self._position + len(target)]
            target[: len(part)] = part
        self._position += len(part)
        return len(part)

    def readall(self) -> bytes:
        self._check(self._is_readable, "reading")
        part = bytes(self._content[self._position :])
        self._position += len(part)
        return part

    def write(self, data: Any) -> int:
        self._check(self._is_writable, "writing")
        with memoryview(data).cast("B") as source:
            start = self.size() if self._is_appending else self._position
            end = start + len(source)
            self._change(min(start, self.size()), max(end, self.size()))
            self._content.extend(bytes(max(0, start - self.size())))
            self._content[start - self._hidden : end - self._hidden] = source
        self._position = end
        return end - start

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check()
        offset = operator.index(offset)
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}.get(whence)
        if base is None or base + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        self._check()
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        self._check(self._is_writable, "writing")
        size = self._position if size is None else size
        if size < self._hidden:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._change(min(size, self.size()), size)
        del self._content[size - self._hidden :]
        self._content.extend(bytes(size - self.size()))
        return size

    def flush(self) -> None:
        super().flush()
        self.save()

    def save(self) -> None:
        """Give the host what it does not have yet.

        Raises:
            OSError: It does not take it; the next flush tries again.
        """
        if not self._is_dirty:
            return
        if self._saved is None:
            self._give("write", self._content)
        else:
            at = {} if self._is_appending else {"at": self._saved}
            self._give("append", self._content[self._saved :], **at)
        self._saved = len(self._content)
        self._is_dirty = False

    def fileno(self) -> int:
        """A number that the patched functions of `os` know."""
        self._check()
        return self._descriptor

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} instances")

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._workspace.files.forget(self._descriptor)

    def _open(self, place: str, flags: int) -> None:
        workspace, name = self._workspace, self.name
        if self._is_writable and not workspace.is_writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)
        is_new = False
        facts: Any = None
        if flags & os.O_CREAT:
            is_new, facts = workspace.ask("create", name, place, must_be_new=bool(flags & os.O_EXCL))
        if is_new:
            self._saved = 0
        elif flags & os.O_TRUNC:
            facts = facts or workspace.facts(name, place)
            self._is_dirty = True  # what is there stays until there is something else
        elif self._is_appending and not self._is_readable:
            facts = facts or workspace.facts(name, place)
            self._hidden = facts[1]
            self._saved = 0
        else:
            text, facts = workspace.ask("read", name, place)
            self._content[:] = base64.b64decode(text)
            self._saved = len(self._content)
        if facts[0]:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        self.changed_ns = facts[2]

    def _give(self, operation: str, content: bytearray, **more: int) -> None:
        if self.place is not None:
            text = base64.b64encode(content).decode()
            facts = self._workspace.give(operation, self.name, self.place, base64=text, **more)
            self.changed_ns = facts[2]

    def _change(self, start: int, size: int) -> None:
        """From `start` on the content is about to differ from the host's; `size` is what the file will have."""
        if size > self._workspace.file_bytes:
            raise OSError(errno.EFBIG, f"larger than {self._workspace.file_limit}", self.name)
        self._is_dirty = True
        if self._saved is not None and start - self._hidden < self._saved:
            self._saved = None

    def _check(self, is_allowed: bool = True, purpose: str = "") -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if not is_allowed:
            raise io.UnsupportedOperation(f"File not open for {purpose}")
