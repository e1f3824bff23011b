"""Why a file operation was not done; the script gets it as the OSError of that name."""

import errno


class FileError(Exception):
    """`name` is errno's, like "ENOENT": numbers differ inside. An empty message leaves the words to Python."""

    def __init__(self, name: str, message: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.message = message


def from_os(error: OSError) -> FileError:
    """The error of a system call, without the names and paths of this machine that it may carry."""
    name = errno.errorcode.get(error.errno or 0, "")
    return FileError(name if name in _TOLD else "EIO")


_WORDS = """
    EACCES EBUSY EDQUOT EEXIST EFBIG EINVAL EIO EISDIR ELOOP ENAMETOOLONG ENOENT ENOSPC ENOTDIR ENOTEMPTY EPERM
    EROFS EXDEV
"""
_TOLD = frozenset(_WORDS.split())
