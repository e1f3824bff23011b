"""What scripts may reach besides tools: nothing, unless capabilities say so here."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from manifests.constraints import UNUSABLE, HostPath
from manifests.section import Section


class FileGrant(Section):
    """A folder of this machine in which scripts may have files. They see it as /workspace, their working directory."""

    workspace: HostPath = Field(
        description="The folder, relative to this file's folder. It must exist. Links in it lead nowhere.",
    )
    mode: Literal["read", "write"] = Field(
        default="read",
        description="read (the default): scripts read what is there; write: they change and add to it, too.",
    )
    share: Literal["all", "session", "run"] = Field(
        default="all",
        description=(
            "Who shares files: all runs, in the folder itself (the default); the runs of one session, in a folder "
            "of theirs that goes with the session; or nobody: each run has an empty folder that goes with it."
        ),
    )
    total_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = Field(
        default=100 * 1024 * 1024,
        description=(
            "Bytes of all files in the folder (default 104857600, 100 MiB). Writing more is refused with an "
            "OSError. Counts what was there before, too; does not cover reading."
        ),
    )
    total_files: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1000,
        description=(
            "Files and folders in the folder (default 1000). One more is refused with an OSError. Counts what "
            "was there before, too; does not cover reading."
        ),
    )
    file_bytes: Annotated[int, Field(ge=1, le=64 * 1024 * 1024)] = Field(
        default=10 * 1024 * 1024,
        description=(
            "Bytes of one file that is read or written (default 10485760, 10 MiB). A larger one is refused with "
            "an OSError."
        ),
    )
    operations: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=10_000,
        description=(
            "File operations of one run (default 10000). The next one is refused. Reading or writing a whole "
            "file is one, looking whether it exists another."
        ),
    )

    @model_validator(mode="after")
    def _has_something_to_read(self) -> Self:
        if self.mode == "read" and self.share != "all":
            raise PydanticCustomError(
                UNUSABLE,
                "is read only and shared by nobody: there would be nothing to read",
                {"hint": "Use mode: write, or share: all."},
            )
        return self
