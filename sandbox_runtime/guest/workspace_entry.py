"""What `os.scandir` finds in the workspace."""

import os
import stat
from typing import Any

from sandbox_runtime.guest.workspace import Facts, Workspace


class WorkspaceEntry:
    """As `os.DirEntry`; what it tells is as old as the listing."""

    def __init__(self, workspace: Workspace, folder: Any, place: str, name: Any, facts: Facts) -> None:
        """`folder` and `name` are both text or both bytes, as the script asked."""
        self.name = name
        self.path = os.path.join(folder, name)
        self._status = workspace.status(place, facts)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self._status.st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self._status.st_mode)

    def is_symlink(self) -> bool:
        return False

    def is_junction(self) -> bool:
        return False

    def inode(self) -> int:
        return self._status.st_ino

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._status

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"
