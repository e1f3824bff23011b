"""What scripts may reach besides tools: nothing, unless capabilities say so here."""

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, Strict, model_validator

from manifests.constraints import HostPath, ReachableHost, refusal
from manifests.section import Section

NO_TENANT: Final = "_nobody"
"""The folder of runs that are no tenant's, where `share` is tenant. No tenant is called so."""


class FileGrant(Section):
    """A folder of this machine in which scripts may have files. They see it as /workspace, their working directory."""

    workspace: HostPath = Field(
        description="The folder, relative to this file's folder. It must exist. Links in it lead nowhere.",
    )
    mode: Literal["read", "write"] = Field(
        default="read",
        description="read (the default): scripts read what is there; write: they change and add to it, too.",
    )
    share: Literal["all", "tenant", "session", "run"] = Field(
        default="all",
        description=(
            "Who shares files: all runs, in the folder itself (the default); the runs of one tenant (server.tokens), "
            "in a folder within it that is kept; the runs of one session, in a folder of theirs that goes with the "
            "session; or nobody: each run has an empty folder that goes with it."
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
        if self.mode == "read" and self.share in ("session", "run"):
            raise refusal(
                "is read only and shared by nobody: there would be nothing to read",
                "Use mode: write, or share: all.",
            )
        return self


Hosts: TypeAlias = Annotated[tuple[ReachableHost, ...], Strict(False), Field(max_length=1000)]


class NetworkGrant(Section):
    """Hosts from which scripts may fetch, with `portal.fetch` and nothing else.

    A host is a name, an address, `*.suffix` or `*`, with or without a port; without one it means 443 for https and 80
    for http. Every address that a name stands for is looked at when the connection is made.
    """

    allow: Hosts = Field(
        default=(),
        description="Hosts at public addresses: names, *.suffix, addresses, or * for all. Default: none.",
    )
    private: Hosts = Field(
        default=(),
        description=(
            "Hosts that may lie at private addresses (loopback, 10/8, 172.16/12, 192.168/16, 100.64/10, fc00::/7), "
            "beside those in allow. Link-local addresses and those of cloud metadata have to be written out as "
            "addresses. Default: none."
        ),
    )
    requests: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=50,
        description=(
            "Requests one run may send (default 50), redirects that are followed among them. The next one is refused."
        ),
    )
    seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=30.0,
        description=(
            "Seconds one fetch may take (default 30), with its redirects and the whole of the answer. A longer one "
            "ends in an error in the script, and may have had its effect."
        ),
    )
    response_bytes: Annotated[int, Field(ge=1, le=64 * 1024 * 1024)] = Field(
        default=5 * 1024 * 1024,
        description=(
            "Bytes of one answer's body, after decompression (default 5242880, 5 MiB). A longer one is refused with an "
            "error in the script, not cut. limits.outcome_bytes bounds it, too: in base64, which is a third longer."
        ),
    )

    @model_validator(mode="after")
    def _has_somewhere_to_go(self) -> Self:
        if not (self.allow or self.private):
            raise refusal("names no host", "List hosts under allow.")
        if any(host.startswith("*") and not host.startswith("*.") for host in self.private):
            raise refusal("lets scripts reach every private address", "Under private, name the hosts.")
        return self
