"""What a script may use: its limits, files and network."""

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, Strict, model_validator

from manifests.constraints import HostPath, ReachableHost, Seconds, Section, refusal


class Limits(Section):
    """What one run of a script may use. All of it is enforced outside the sandbox."""

    wall_seconds: Seconds = 60.0
    """Seconds a run may take, waiting for upstreams included (default 60). More stops it. Does not cover waiting for a
    free worker, parsing the script (at most 5 s) or checking it."""
    cpu_seconds: Seconds = 10.0
    """Seconds of computing a run may do (default 10). More stops it. Does not cover waiting for calls."""
    memory_mib: Annotated[int, Field(ge=32, le=1024)] = 256
    """MiB of memory a script may fill, Python itself included (default 256). More raises MemoryError or stops it."""
    tool_calls: Annotated[int, Field(ge=0, le=1_000_000)] = 200
    """Calls one run may make, those that fail included (default 200). The next one is refused; the script goes on."""
    parallel_calls: Annotated[int, Field(ge=1, le=1024)] = 64
    """Calls of one run that may be under way at once (default 64). Others wait their turn; none is refused."""
    argument_bytes: Annotated[int, Field(ge=2, le=64 * 1024 * 1024)] = 1024 * 1024
    """Bytes of the arguments of one call, as JSON in UTF-8 (default 1048576, 1 MiB); each value counts at least 8. More
    is refused. All calls of a run that are not done may hold 32 times as much."""
    outcome_bytes: Annotated[int, Field(ge=2, le=256 * 1024 * 1024)] = 10 * 1024 * 1024
    """Bytes of what one call returns, as JSON in UTF-8 (default 10485760, 10 MiB). More is an error in the script, not
    cut. The upstream has acted by then."""
    result_bytes: Annotated[int, Field(ge=2, le=256 * 1024 * 1024)] = 10 * 1024 * 1024
    """Bytes of a script's value and of what it emits, as JSON in UTF-8 (default 10485760, 10 MiB); each value counts at
    least 32. More is an error. What the model sees is bound by server.output_tokens."""
    stdout_bytes: Annotated[int, Field(ge=0, le=64 * 1024 * 1024)] = 256 * 1024
    """Bytes of what a script prints, in UTF-8 (default 262144, 256 KiB). The rest is dropped, and the answer says
    so."""


NO_TENANT: Final = "_nobody"
"""The folder of runs that are no tenant's, where `share` is tenant. No tenant is called so."""


class FileGrant(Section):
    """A folder of this machine in which scripts may have files. They see it as /workspace, their working directory."""

    workspace: HostPath
    """The folder, relative to this file's folder. It must exist. Links in it lead nowhere."""
    mode: Literal["read", "write"] = "read"
    """read (the default): scripts read what is there; write: they change and add to it, too."""
    share: Literal["all", "tenant", "session", "run"] = "all"
    """Who shares files: all runs (the default); the runs of one tenant, in a folder within it that is kept; the runs of
    one session, in a folder that goes with the session; or nobody: each run has an empty folder."""
    total_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 100 * 1024 * 1024
    """Bytes of all files there, those from before included (default 104857600, 100 MiB). Writing more is an OSError."""
    total_files: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Files and folders there, those from before included (default 1000). One more is an OSError."""
    file_bytes: Annotated[int, Field(ge=1, le=64 * 1024 * 1024)] = 10 * 1024 * 1024
    """Bytes of one file that is read or written (default 10485760, 10 MiB). A larger one is refused with an OSError."""
    operations: Annotated[int, Field(ge=0, le=1_000_000)] = 10_000
    """File operations of one run (default 10000), such as reading a whole file. The next one is refused."""

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

    allow: Hosts = ()
    """Hosts at public addresses: names, *.suffix, addresses, or * for all. Default: none."""
    private: Hosts = ()
    """Hosts that may lie at private addresses (loopback, 10/8, 192.168/16, fc00::/7 ...), beside those in allow.
    Link-local and cloud metadata addresses have to be written out. Default: none."""
    requests: Annotated[int, Field(ge=0, le=100_000)] = 50
    """Requests one run may send (default 50), redirects that are followed among them. The next one is refused."""
    seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    """Seconds one fetch may take, redirects included (default 30). More is an error; it may have had its effect."""
    response_bytes: Annotated[int, Field(ge=1, le=64 * 1024 * 1024)] = 5 * 1024 * 1024
    """Bytes of one answer's body, decompressed (default 5242880, 5 MiB). More is an error in the script, not cut.
    limits.outcome_bytes bounds it in base64, too."""

    @model_validator(mode="after")
    def _has_somewhere_to_go(self) -> Self:
        if not (self.allow or self.private):
            raise refusal("names no host", "List hosts under allow.")
        if any(host.startswith("*") and not host.startswith("*.") for host in self.private):
            raise refusal("lets scripts reach every private address", "Under private, name the hosts.")
        return self
