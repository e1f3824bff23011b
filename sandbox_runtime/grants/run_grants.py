"""What one run is granted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from manifests.json_value import Json
from sandbox_runtime.grants.fetcher import Fetcher
from sandbox_runtime.grants.file_service import FileService

_ENVELOPE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class RunGrants:
    """Nothing, unless the manifest says otherwise.

    `environment` is what the script sees in `os.environ`; `files` answers its file operations, and whoever answers
    its calls hands those of `portal.fetch` to `fetcher`.
    """

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: FileService | None = None
    fetcher: Fetcher | None = None

    @property
    def longest_write(self) -> int:
        """Bytes of the longest file operation: a whole file, in base64."""
        if self.files is None or self.files.grant.mode != "write":
            return 0
        return self.files.grant.file_bytes * 4 // 3 + _ENVELOPE_BYTES

    def settings(self) -> dict[str, Json]:
        """What the guest is told, so that it can ask for what there is."""
        told: dict[str, Json] = {}
        if self.environment:
            told["environment"] = dict(self.environment)
        if self.files is not None:
            grant = self.files.grant
            told["files"] = {
                "is_writable": grant.mode == "write",
                "file_bytes": grant.file_bytes,
                "file_limit": self.files.limit("file_bytes"),
            }
        return told


NO_GRANTS = RunGrants()
