"""What can go wrong with a client's configuration file. None of it keeps the other files from being read.

PortalError
└── ClientFileError       the file at `path` cannot be read, understood or changed
    └── ChangedFileError  it changed while the portal looked at it, and was left alone
"""

from pathlib import Path

from portal.errors import PortalError


class ClientFileError(PortalError):
    """A file that cannot be used; `line` counts from 1 and is None where there is none to name."""

    def __init__(self, path: Path, message: str, line: int | None = None) -> None:
        self.path = path
        self.message = message
        self.line = line
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {message}")


class ChangedFileError(ClientFileError):
    """Somebody else wrote the file between reading and writing it."""
