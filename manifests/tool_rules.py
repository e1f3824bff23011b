"""Rules about tools as portal.yaml writes them, and what a tool declares of itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Strict, Tag, model_validator

from manifests.conditions import ArgumentSchema, Comparison
from manifests.constraints import Pattern, Section, refusal
from manifests.json_value import Json

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

RULE_KINDS = ("pattern", "rule")
"""What stands in the place of an error behind the index of an item of `allow` or `deny`."""


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
    return "pattern" if isinstance(value, str) else "rule"


AllowItem: TypeAlias = Annotated[
    Annotated[Pattern, Tag("pattern")] | Annotated[AllowRule, Tag("rule")], Discriminator(_kind)
]
DenyItem: TypeAlias = Annotated[
    Annotated[Pattern, Tag("pattern")] | Annotated[DenyRule, Tag("rule")], Discriminator(_kind)
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


def _listed(value: Json) -> Json:
    return [value] if isinstance(value, str) else value


Ends: TypeAlias = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=100)], ...],
    Strict(False),
    BeforeValidator(_listed),
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
