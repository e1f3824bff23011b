"""What one tool is to a script: a typed, keyword-only Python function."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

from manifests.hints import Hints
from manifests.json_value import Json
from portal.library.result_wrapper import declared_result
from portal.library.schema.sound_schema import SoundSchema, arguments_schema
from portal.library.type_expressions import Type, render
from upstreams.recorded_tool import RecordedTool


class NoDefault(Enum):
    """The type of `NO_DEFAULT`."""

    NO_DEFAULT = "no default"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT
"""The schema declares no default; None would be one."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One keyword of a function.

    An optional parameter that a script leaves out is not sent: the upstream applies its own default, and
    `default` only shows it. The one exception is a property that is both required and has a default; there
    the default is sent (`is_default_sent`), because without it the call would break the tool's own schema.
    None for an optional parameter whose schema does not take null (`is_nullable`) means: not sent.
    """

    name: str
    wire_name: str
    type: Type
    required: bool
    default: Json | NoDefault
    default_source: str
    """What stands behind `=` in a signature: the default if it is short and simple, `...`, or "" if required."""
    doc: str
    is_nullable: bool = False
    is_default_sent: bool = False

    @property
    def annotation(self) -> str:
        """The type as a signature shows it, `list[str] | None`."""
        return render(self.type)


@dataclass(frozen=True, eq=False)
class Function:
    """One tool as scripts see it. `signature`, `stub` and `summary` are safe to show: no text of the
    upstream stands anywhere but in docstrings, comments and string literals, escaped.

    `signature` is one line, `async def tickets.create_issue(*, title: str, ...) -> Issue`; `stub` is the
    function's part of its module: the types it needs, and the definition with its docstring.
    """

    namespace: str
    name: str
    upstream: str
    tool: str
    parameters: tuple[Parameter, ...]
    returns: str
    summary: str
    description: str
    signature: str
    types: tuple[str, ...]
    """The definitions of the types that the signature needs, in an order in which they can stand."""
    definition: str
    """The function as it stands in a stub: parameters, return type, docstring."""
    recorded: RecordedTool = field(repr=False)
    """The tool as the upstream sent it."""
    wraps_result: bool
    takes_others: bool
    """Whether the tool takes arguments that its schema does not name."""
    is_observable: bool
    """Whether the tool says nothing about its result, so that it can only be learnt from real ones."""
    is_observed: bool
    """Whether `returns` is what real results were like. They may differ the next time."""

    @cached_property
    def arguments(self) -> SoundSchema:
        """The input schema as calls are checked against it; made when the first call is, of few of many functions."""
        return arguments_schema(self.recorded.input_schema)

    @cached_property
    def results(self) -> SoundSchema:
        """What the tool declares about the value that scripts get; results that are otherwise are passed on too."""
        return declared_result(self.recorded.output_schema)

    @property
    def input_schema(self) -> Json:
        return self.recorded.input_schema

    @property
    def output_schema(self) -> Json | None:
        return self.recorded.output_schema

    @property
    def digest(self) -> str | None:
        """Of the tool's definition; None if it cannot be digested."""
        return self.recorded.digest

    @cached_property
    def hints(self) -> Hints:
        """What the tool declares of itself."""
        return Hints.of(self.recorded.annotations)

    @cached_property
    def by_keyword(self) -> Mapping[str, Parameter]:
        """Parameters by the keywords that scripts may use: their own names, and wire names beside them."""
        own = {parameter.name: parameter for parameter in self.parameters}
        return {parameter.wire_name: parameter for parameter in self.parameters} | own

    @property
    def qualified(self) -> str:
        """What a script writes: `tickets.create_issue`."""
        return f"{self.namespace}.{self.name}"

    @property
    def stub(self) -> str:
        """The function's part of its module: the types it needs, and its definition."""
        return "\n\n".join([*self.types, self.definition])
