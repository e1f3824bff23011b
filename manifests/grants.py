"""What a script may use, as portal.yaml writes it: tools, limits, files, network; and what a tool says of itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Strict, Tag, model_validator

from manifests.conditions import ArgumentSchema, Comparison
from manifests.constraints import TAG, HostPath, Pattern, ReachableHost, Seconds, Section, refusal
from manifests.json_value import Json


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
    """Bytes of one answer's body (default 5242880, 5 MiB). More is an error in the script, not cut.
    limits.outcome_bytes bounds it in base64, too."""

    @model_validator(mode="after")
    def _has_somewhere_to_go(self) -> Self:
        if not (self.allow or self.private):
            raise refusal("names no host", "List hosts under allow.")
        if any(host.startswith("*") and not host.startswith("*.") for host in self.private):
            raise refusal("lets scripts reach every private address", "Under private, name the hosts.")
        return self


Annotation: TypeAlias = Literal["readonly", "destructive", "open_world"]


@dataclass(frozen=True, slots=True)
class Hints:
    """A tool's own word, and no more than that. What it does not declare, it does not have: the defaults of the
    specification would make every silent tool destructive.

    One that declares both that it only reads and that it destroys is taken for destructive, and so is one whose
    `destructiveHint` is no boolean.

    Source: MCP 2026-07-28, schema#toolannotations.
    """

    readonly: bool = False
    destructive: bool = False
    open_world: bool = False
    is_silent: bool = True
    """Whether it declares none of them, in either sense."""

    @classmethod
    def of(cls, annotations: Mapping[str, Json]) -> Self:
        """Read a tool's annotations; anything but true is no declaration that it is harmless or reaches others."""
        declared = annotations.get("destructiveHint")
        destructive = declared is not None and declared is not False  # not `in`: 0 equals False
        return cls(
            readonly=annotations.get("readOnlyHint") is True and not destructive,
            destructive=destructive,
            open_world=annotations.get("openWorldHint") is True,
            is_silent=not destructive and not any(isinstance(annotations.get(name), bool) for name in _NAMES),
        )

    def has(self, annotation: Annotation) -> bool:
        return bool(getattr(self, annotation))


_NAMES = ("readOnlyHint", "destructiveHint", "openWorldHint")

NO_HINTS = Hints()


Calls: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]


class DenyRule(Section):
    """Tools that are meant: those whose name matches and that declare what is asked for."""

    tool: Pattern = "*"
    """A pattern for the tool's name. Default: *, all of them."""
    annotation: Annotation | None = None
    """Only tools that declare this of themselves: readonly, destructive or open_world."""

    @model_validator(mode="after")
    def _means_something(self) -> Self:
        if "tool" not in self.model_fields_set and self.annotation is None:
            raise refusal("means no tool", "Give it a tool, an annotation, or both.")
        return self


class AllowRule(DenyRule):
    """Tools that are meant, and what their arguments must be.

    Where a rule of the list puts a tool under a condition, some condition that the list has for it must hold: a rule
    without one, like *, does not lift it.
    """

    where: dict[Annotated[str, Field(max_length=500)], Comparison] = Field(default_factory=dict)
    """What arguments must be, by the names that the tool itself gives them. Default: anything."""
    schema_: ArgumentSchema | None = Field(default=None, alias="schema")
    """A JSON Schema that the arguments of a call must fit. Default: any."""


def _kind(value: Json) -> str:
    return f"{TAG}pattern" if isinstance(value, str) else f"{TAG}rule"


AllowItem: TypeAlias = Annotated[
    Annotated[Pattern, Tag(f"{TAG}pattern")] | Annotated[AllowRule, Tag(f"{TAG}rule")], Discriminator(_kind)
]
DenyItem: TypeAlias = Annotated[
    Annotated[Pattern, Tag(f"{TAG}pattern")] | Annotated[DenyRule, Tag(f"{TAG}rule")], Discriminator(_kind)
]


class CallBudget(Section):
    """How often tools may be called. All tools that the pattern matches share it."""

    tool: Pattern
    """A pattern for the tools' names."""
    calls: Calls | None = None
    """Calls that one run may make of them. The next one is refused. Default: limits.tool_calls only."""
    per_minute: Calls | None = None
    """Calls of all runs of one portal in any 60 seconds. The next one is refused. Default: no limit."""

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.calls is None and self.per_minute is None:
            raise refusal("bounds nothing", "Say calls, per_minute or both.")
        return self


class ToolRules(Section):
    """Which tools scripts may call.

    A pattern (`*`, `?`, `[abc]`; upper and lower case differ) is compared with the tool's own name, the
    function's name, `upstream.tool` and `namespace.function`. What restricts is also compared with the name
    that the function has where no other tool takes it, so that no tool which is added lifts it.
    """

    allow: Annotated[tuple[AllowItem, ...], Strict(False), Field(max_length=1000)] = ("*",)
    """Tools that may be called: patterns, and mappings like {annotation: readonly} or {tool: files.write_file, where:
    {path: {prefix: reports/}}}. Default: all of them."""
    deny: Annotated[tuple[DenyItem, ...], Strict(False), Field(max_length=1000)] = ()
    """Tools that may not, whatever allow says: patterns, and mappings like {annotation: open_world}. Default: none."""
    destructive: Literal["refuse", "allow"] | None = None
    """Whether tools that declare themselves destructive may be called although no pattern in allow names them. Default:
    refuse."""
    budgets: Annotated[tuple[CallBudget, ...], Strict(False), Field(max_length=1000)] = ()
    """How often tools may be called. Default: as often as limits.tool_calls allows."""


NETWORK: Final = "network"
"""What `portal.fetch` reaches, as rules name it."""

ANY: Final = "*"


Ends: TypeAlias = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=100)], ...],
    Strict(False),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(min_length=1, max_length=1000),
]


class FlowRule(Section):
    """Once a script, or one before it in its session, has sent a call to one of `from`, calls to `not_to` are refused.

    Names are those of upstreams, `network` for portal.fetch, or * for all that are not under from. What a script
    leaves in files or tells the model is beyond it.
    """

    from_: Ends = Field(alias="from")
    """Upstreams from which something came; one, or a list."""
    not_to: Ends
    """Where it may not go: upstreams, or network for portal.fetch; one, or a list."""

    def forbids(self, source: str, destination: str) -> bool:
        """Whether what came from `source` may not go to `destination`, both as the manifest names them."""
        if source == destination:
            return source in self.from_ and source in self.not_to
        is_from = source in self.from_ or ANY in self.from_
        is_any = ANY in self.not_to and destination not in self.from_
        return is_from and (destination in self.not_to or is_any)
