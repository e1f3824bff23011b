"""The grants of portal.yaml: tools, limits, files, network; and a tool's own annotations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Strict, Tag, model_validator

from manifests.conditions import ArgumentSchema, Comparison
from manifests.constraints import TAG, HostPath, HostPatternText, Pattern, Seconds, Section, refusal
from manifests.json_value import Json


class Limits(Section):
    """Limits of one run of a script. All are enforced outside the sandbox."""

    wall_seconds: Seconds = 60.0
    """Seconds per run, including waits for upstreams (default 60). Then it is stopped (`wall_limit`). Does not cover
    waiting for a free worker, parsing the script (at most 5 s) or checking it."""
    background_seconds: Seconds = 3600.0
    """The same for runs in the background (default 3600, or wall_seconds if only that is set). Waits of `portal.sleep`,
    `event` and `approve` do not count once a run is parked, that is suspended."""
    cpu_seconds: Seconds = 10.0
    """Seconds of CPU time per run (default 10). Then it is stopped (`cpu_limit`). Does not cover waiting for calls."""
    memory_mib: Annotated[int, Field(ge=40, le=1024)] = 256
    """MiB of memory per script (default 256). Python itself takes 32 of it. More raises MemoryError or ends the run."""
    tool_calls: Annotated[int, Field(ge=0, le=1_000_000)] = 200
    """Calls per run, including failed ones (default 200). The next one is refused, and the script continues."""
    parallel_calls: Annotated[int, Field(ge=1, le=1024)] = 64
    """Calls of one run at the same time (default 64). Further calls wait, up to 10,000 of them."""
    argument_bytes: Annotated[int, Field(ge=2, le=64 * 1024 * 1024)] = 1024 * 1024
    """Bytes of the arguments of one call, as JSON in UTF-8 (default 1048576, 1 MiB). Each value counts at least 8. A
    larger call is refused. All unfinished calls of a run together may hold 32 times as much."""
    outcome_bytes: Annotated[int, Field(ge=2, le=256 * 1024 * 1024)] = 10 * 1024 * 1024
    """Bytes of the result of one call, as JSON in UTF-8 (default 10485760, 10 MiB). More is an error in the script;
    nothing is cut. By then the upstream has acted."""
    result_bytes: Annotated[int, Field(ge=2, le=256 * 1024 * 1024)] = 10 * 1024 * 1024
    """Bytes of a script's value and of its emitted blocks, as JSON in UTF-8 (default 10485760, 10 MiB). Each value
    counts at least 32. More is an error. server.output_tokens limits what the model sees."""
    stdout_bytes: Annotated[int, Field(ge=0, le=64 * 1024 * 1024)] = 256 * 1024
    """Bytes of a script's output, in UTF-8 (default 262144, 256 KiB). The rest is dropped with a notice."""

    def of_run(self, is_background: bool) -> tuple[str, Self]:
        """The limits of one run, and the name of the one that gives its wall_seconds."""
        is_own = "background_seconds" in self.model_fields_set or "wall_seconds" not in self.model_fields_set
        if not (is_background and is_own):
            return "wall_seconds", self
        return "background_seconds", self.model_copy(update={"wall_seconds": self.background_seconds})


NO_TENANT: Final = "_nobody"
"""The folder of runs without a tenant, if `share` is tenant. Tenants cannot have this name."""


class FileGrant(Section):
    """A folder of this machine for the files of scripts. They see it as /workspace, their working directory."""

    workspace: HostPath
    """The folder, relative to this file's folder. It must exist. Links in it are not followed."""
    mode: Literal["read", "write"] = "read"
    """read (the default): scripts only read. write: they also create, change and delete files."""
    share: Literal["all", "tenant", "session", "run"] = "all"
    """Who shares files. all: every run (the default). tenant: runs of one tenant, in a permanent subfolder. session:
    runs of one session, in a folder that is removed with it. run: no sharing; each run starts with an empty folder."""
    total_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 100 * 1024 * 1024
    """Bytes of all files, including existing ones (default 104857600, 100 MiB). Writing more is an OSError."""
    total_files: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Number of files and folders, including existing ones (default 1000). One more is an OSError."""
    file_bytes: Annotated[int, Field(ge=1, le=64 * 1024 * 1024)] = 10 * 1024 * 1024
    """Bytes of one file (default 10485760, 10 MiB). Reading or writing a larger one is an OSError."""
    operations: Annotated[int, Field(ge=0, le=1_000_000)] = 10_000
    """File operations of one run (default 10000), such as reading a whole file. The next one is refused."""

    @model_validator(mode="after")
    def _has_something_to_read(self) -> Self:
        if self.mode == "read" and self.share in ("session", "run"):
            raise refusal("is read-only, but its folders start empty", "Use mode: write, or share: all.")
        return self


Hosts: TypeAlias = Annotated[tuple[HostPatternText, ...], Strict(False), Field(max_length=1000)]


class NetworkGrant(Section):
    """Hosts that scripts may fetch from, with `portal.fetch` only.

    A host is a name, an address, `*.suffix` or `*`, optionally with a port. Without one it means 443 for https and 80
    for http. All addresses of a name are checked when the connection is made.
    """

    allow: Hosts = ()
    """Hosts at public addresses: names, *.suffix, addresses, or * for all. Default: none."""
    private: Hosts = ()
    """Further hosts, which may be at private addresses (loopback, 10/8, 192.168/16, fc00::/7 ...). Link-local and cloud
    metadata addresses must be listed themselves. Default: none."""
    requests: Annotated[int, Field(ge=0, le=100_000)] = 50
    """Requests per run, including followed redirects (default 50). The next one is refused."""
    seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    """Seconds per fetch, including redirects (default 30). More is an error; the request may have had its effect."""
    response_bytes: Annotated[int, Field(ge=1, le=64 * 1024 * 1024)] = 5 * 1024 * 1024
    """Bytes of one response body (default 5242880, 5 MiB). More is an error in the script; nothing is cut.
    limits.outcome_bytes also limits the body, in base64."""

    @model_validator(mode="after")
    def _has_somewhere_to_go(self) -> Self:
        if not (self.allow or self.private):
            raise refusal("names no host", "List hosts under allow.")
        if any(host.startswith("*") and not host.startswith("*.") for host in self.private):
            raise refusal("allows every private address", "List the hosts under private.")
        return self


Annotation: TypeAlias = Literal["readonly", "destructive", "open_world"]


@dataclass(frozen=True, slots=True)
class Hints:
    """A tool's own annotations, which are not verified.

    A missing hint is false: the defaults of the specification would make every tool without hints destructive. A tool
    with both `readOnlyHint` and `destructiveHint` counts as destructive, as does one whose `destructiveHint` is not a
    boolean.

    Source: MCP 2026-07-28, schema#toolannotations.
    """

    readonly: bool = False
    destructive: bool = False
    open_world: bool = False
    is_silent: bool = True
    """Whether it declares no hint, neither true nor false."""

    @classmethod
    def of(cls, annotations: Mapping[str, Json]) -> Self:
        """Read a tool's annotations. `readOnlyHint` and `openWorldHint` count only if they are exactly true."""
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


Calls: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]


class DenyRule(Section):
    """Matches tools by name and by annotation."""

    tool: Pattern = "*"
    """A pattern for the tool's name. Default: *, all tools."""
    annotation: Annotation | None = None
    """Only tools that declare this annotation: readonly, destructive or open_world."""

    @model_validator(mode="after")
    def _means_something(self) -> Self:
        if "tool" not in self.model_fields_set and self.annotation is None:
            raise refusal("matches no tool", "Give it a tool, an annotation, or both.")
        return self


class AllowRule(DenyRule):
    """Matches tools, and puts conditions on their arguments.

    If any rule of the list has a condition for a tool, one of those conditions must hold. A rule without a condition,
    like *, does not lift it.
    """

    where: dict[Annotated[str, Field(max_length=500)], Comparison] = Field(default_factory=dict)
    """Conditions on arguments, by the tool's own argument names. Default: none."""
    schema_: ArgumentSchema | None = Field(default=None, alias="schema")
    """A JSON Schema that the arguments of a call must match. Default: none."""


def _kind(value: Json) -> str:
    return f"{TAG}pattern" if isinstance(value, str) else f"{TAG}rule"


AllowItem: TypeAlias = Annotated[
    Annotated[Pattern, Tag(f"{TAG}pattern")] | Annotated[AllowRule, Tag(f"{TAG}rule")], Discriminator(_kind)
]
DenyItem: TypeAlias = Annotated[
    Annotated[Pattern, Tag(f"{TAG}pattern")] | Annotated[DenyRule, Tag(f"{TAG}rule")], Discriminator(_kind)
]


class CallBudget(Section):
    """How often tools may be called. All tools that match the pattern share the budget."""

    tool: Pattern
    """A pattern for the tools' names."""
    calls: Calls | None = None
    """Calls of these tools per run. The next one is refused. Default: only limits.tool_calls applies."""
    per_minute: Calls | None = None
    """Calls of these tools by all runs of one portal in any 60 seconds. The next one is refused. Default: no limit."""

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.calls is None and self.per_minute is None:
            raise refusal("has no limit", "Set calls, per_minute or both.")
        return self


class ToolRules(Section):
    """Which tools scripts may call.

    A pattern (`*`, `?`, `[abc]`; case-sensitive) matches the tool's own name, the function's name, `upstream.tool` and
    `namespace.function`. A restriction also matches the function's default name, so that a tool added later cannot
    lift it.
    """

    allow: Annotated[tuple[AllowItem, ...], Strict(False), Field(max_length=1000)] = ("*",)
    """Tools that may be called: patterns, and mappings like {annotation: readonly} or {tool: files.write_file, where:
    {path: {prefix: reports/}}}. Default: all tools."""
    deny: Annotated[tuple[DenyItem, ...], Strict(False), Field(max_length=1000)] = ()
    """Tools that are refused in any case: patterns, and mappings like {annotation: open_world}. Default: none."""
    ask: Annotated[tuple[DenyItem, ...], Strict(False), Field(max_length=1000)] = ()
    """Tools whose calls wait until a person approves them: patterns, and mappings like {annotation: destructive}. Names
    destructive tools as allow does. Default: none."""
    destructive: Literal["refuse", "allow"] | None = None
    """Whether destructive tools may be called without being named in allow or ask. Default: refuse."""
    budgets: Annotated[tuple[CallBudget, ...], Strict(False), Field(max_length=1000)] = ()
    """How often tools may be called. Default: only limits.tool_calls applies."""


NETWORK: Final = "network"
"""The name of `portal.fetch` as the end of a flow."""

FETCH: Final = "portal.fetch"
"""The function's name. No namespace can be called `portal`."""

ANY: Final = "*"


Ends: TypeAlias = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=100)], ...],
    Strict(False),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(min_length=1, max_length=1000),
]


class FlowRule(Section):
    """Refuses calls to `not_to` once a script has called one of `from`, or used data left by a script that did.

    A name is an upstream, `network` for portal.fetch, or * for all that are not under from. The rule covers sessions,
    kept results and shared files, but not what a script returns to the model.
    """

    from_: Ends = Field(alias="from")
    """Upstreams that the data comes from; one, or a list."""
    not_to: Ends
    """Destinations that the data must not reach: upstreams, or network for portal.fetch; one, or a list."""

    def forbids(self, source: str, destination: str) -> bool:
        """Whether data from `source` must not go to `destination`, both as the manifest names them."""
        if source == destination:
            return source in self.from_ and source in self.not_to
        is_from = source in self.from_ or ANY in self.from_
        is_any = ANY in self.not_to and destination not in self.from_
        return is_from and (destination in self.not_to or is_any)
