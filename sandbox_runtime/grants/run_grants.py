"""The grants of one run."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from manifests.json_value import Json
from manifests.portal_manifest import Capabilities
from sandbox_runtime.grants.files import FileService, Owner, Workspaces, open_workspaces

_ENVELOPE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class RunGrants:
    """The grants of one run; by default none.

    `environment` is the script's `os.environ`. `files` answers its file operations. `run_id` is the script's
    `portal.run.id`.
    """

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: FileService | None = None
    run_id: str = ""

    @property
    def longest_write(self) -> int:
        """Bytes of the longest file operation: a whole file in base64."""
        if self.files is None or self.files.grant.mode != "write":
            return 0
        return self.files.grant.file_bytes * 4 // 3 + _ENVELOPE_BYTES

    def settings(self) -> dict[str, Json]:
        """The grants as settings for the guest."""
        settings: dict[str, Json] = {}
        if self.environment:
            settings["environment"] = dict(self.environment)
        if self.run_id:
            settings["run_id"] = self.run_id
        if self.files is not None:
            grant = self.files.grant
            settings["files"] = {
                "is_writable": grant.mode == "write",
                "file_bytes": grant.file_bytes,
                "file_limit": self.files.limit("file_bytes"),
            }
        return settings


NO_GRANTS = RunGrants()


@asynccontextmanager
async def open_grants(
    capabilities: Capabilities,
    folder: Path,
    where: Callable[..., str],
) -> AsyncIterator["OpenGrants"]:
    """Prepare the grants of `capabilities`. Paths are relative to `folder`; `where` gives the place of a key.

    Raises WorkspaceError: the folder for files does not exist, or cannot be accessed as granted.
    """
    where_files = partial(where, "capabilities", "files")
    async with open_workspaces(capabilities.files, folder, where_files) as workspaces:
        yield OpenGrants(capabilities, workspaces)


class OpenGrants:
    """Creates the grants of each run."""

    def __init__(self, capabilities: Capabilities, workspaces: Workspaces) -> None:
        self._capabilities = capabilities
        self._workspaces = workspaces

    def narrowed(self, capabilities: Capabilities) -> "OpenGrants":
        """The same grants narrowed to other capabilities, with the same files."""
        return OpenGrants(capabilities, self._workspaces)

    @asynccontextmanager
    async def run(
        self, owner: Owner | None, tenant: str | None = None, run_id: str = ""
    ) -> AsyncIterator[RunGrants]:
        """The grants of one run; `owner` is its session, `tenant` the caller's tenant."""
        grant = self._capabilities.files
        if grant is None:
            yield RunGrants(self._capabilities.environment, None, run_id)
            return
        async with self._workspaces.files(owner, tenant, to_read=grant.mode == "read") as files:
            yield RunGrants(self._capabilities.environment, files, run_id)
