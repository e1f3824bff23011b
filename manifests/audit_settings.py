"""Where the portal writes down what was run and called."""

from pydantic import Field

from manifests.constraints import HostPath
from manifests.section import Section


class AuditSettings(Section):
    """An audit log: JSON lines, each with the hash of the one before it."""

    to: HostPath = Field(
        description=(
            "stderr, or a file relative to this file's folder, whose mode is made 0600. While it cannot be "
            "written to, only tools that declare readOnlyHint are called."
        )
    )
    sync: bool = Field(
        default=False,
        description=(
            "Whether each line is on the disk before anything else happens (default false), so that it survives the "
            "end of the machine and not only that of the portal. Costs a wait for the disk, twice for each call."
        ),
    )
