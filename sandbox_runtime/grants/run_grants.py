"""The grants of one run."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field

from manifests.json_value import Json
from manifests.portal_manifest import Capabilities
from sandbox_runtime.grants.files import FileService, Owner, Workspaces

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
    workspaces: Workspaces,
    owner: Owner | None,
    tenant: str | None = None,
    run_id: str = "",
) -> AsyncIterator[RunGrants]:
    """The grants of one run; `owner` is its session, `tenant` the caller's tenant."""
    grant = capabilities.files
    to_read = grant is not None and grant.mode == "read"
    async with workspaces.files(owner, tenant, to_read=to_read) if grant else nullcontext() as files:
        yield RunGrants(capabilities.environment, files, run_id)
