"""What a manifest grants to scripts, made ready once, and handed to each run."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from manifests.portal_manifest import Capabilities
from sandbox_runtime.grants.fetcher import Fetcher, Network
from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.grants.workspaces import Owner, Workspaces, open_workspaces


@asynccontextmanager
async def open_grants(
    capabilities: Capabilities, folder: Path, where: Callable[..., str]
) -> AsyncIterator["OpenGrants"]:
    """Make ready what `capabilities` grant. Paths are relative to `folder`; `where` says where a key is set.

    Raises:
        WorkspaceError: The folder for files is not there, or cannot be used as granted.
    """
    where_files = partial(where, "capabilities", "files")
    async with open_workspaces(capabilities.files, folder, where_files) as workspaces:
        yield OpenGrants(capabilities, workspaces, where)


class OpenGrants:
    """What runs are granted."""

    def __init__(self, capabilities: Capabilities, workspaces: Workspaces, where: Callable[..., str]) -> None:
        self._capabilities = capabilities
        self._workspaces = workspaces
        network = capabilities.network
        self._network = (
            None if network is None else Network(network, partial(where, "capabilities", "network"))
        )

    def narrowed(self, capabilities: Capabilities, where: Callable[..., str]) -> "OpenGrants":
        """As much of them as narrower capabilities leave; the files are the same files."""
        return OpenGrants(capabilities, self._workspaces, where)

    @asynccontextmanager
    async def run(
        self, owner: Owner | None, caller: str, tenant: str | None = None
    ) -> AsyncIterator[RunGrants]:
        """The grants of one run of a caller's, of a session if `owner` is one. `tenant` is whose the caller is."""
        fetcher = None if self._network is None else Fetcher(self._network, caller)
        grant = self._capabilities.files
        if grant is None:
            yield RunGrants(self._capabilities.environment, None, fetcher)
            return
        async with self._workspaces.files(owner, tenant, to_read=grant.mode == "read") as files:
            yield RunGrants(self._capabilities.environment, files, fetcher)
