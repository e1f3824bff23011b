"""One tool compiled on its own: everything about its function but the final names of its types."""

from dataclasses import dataclass

from manifests.json_value import Json
from portal.library.examples import example_call
from portal.library.function import Parameter
from portal.library.parameters import parameters
from portal.library.plain_text import first_sentence, readable
from portal.library.result_wrapper import declared_result, is_wrapper
from portal.library.schema.sound_schema import SoundSchema, arguments_schema, sound_schema
from portal.library.schema_types import SchemaTypes
from portal.library.tool_types import ToolTypes
from portal.library.type_definitions import Definition
from portal.library.type_expressions import ANY, Type, says_nothing
from portal.library.type_names import type_name
from upstreams.recorded_tool import RecordedTool

LONGEST_SUMMARY = 120
"""Characters of a function's summary, the first sentence of its description."""

LONGEST_DESCRIPTION = 1_500
"""Characters of a tool's description that its docstring keeps."""


@dataclass(frozen=True)
class FunctionDraft:
    """A function whose types are named as its tool alone would name them."""

    name: str
    owner: str
    tool: RecordedTool
    observed: Json | None
    mismatch: str
    refusal: str
    parameters: tuple[Parameter, ...]
    others: Type | None
    returns: Type
    is_observable: bool
    is_observed: bool
    definitions: tuple[Definition, ...]
    summary: str
    description: str
    example: str
    wraps_result: bool
    notes: tuple[str, ...]


def draft_function(
    name: str, tool: RecordedTool, observed: Json | None = None, refusal: str = "", mismatch: str = ""
) -> FunctionDraft:
    """Compile one tool; never raises, whatever the tool's schemas are.

    `observed` is a schema of its real results, which counts where the tool itself says nothing about them; `refusal`
    says why it is not granted and what would grant it, "" if it is; `mismatch` where real results were not as declared.
    """
    owner = type_name(name) or "Tool"
    types = ToolTypes()
    arguments = arguments_schema(tool.input_schema)
    argument_types = SchemaTypes(arguments, owner, types)
    keywords = parameters(arguments, argument_types)
    result = declared_result(tool.output_schema)
    result_types = SchemaTypes(result, owner, types)
    returns = ANY if tool.output_schema is None else result_types.result_type(result.root)
    is_observable = says_nothing(returns)
    if is_observable and observed is not None:
        seen = sound_schema(observed)
        returns = SchemaTypes(seen, owner, types).result_type(seen.root)
    text = tool.description or tool.title or ""
    return FunctionDraft(
        name=name,
        owner=owner,
        tool=tool,
        observed=observed,
        mismatch=mismatch,
        refusal=refusal,
        parameters=keywords.named,
        others=keywords.others,
        returns=returns,
        is_observable=is_observable,
        is_observed=is_observable and not says_nothing(returns),
        definitions=tuple(types.definitions.values()),
        summary=first_sentence(text, LONGEST_SUMMARY),
        description=readable(text, LONGEST_DESCRIPTION),
        example=example_call(name, keywords.named, arguments, _examples(tool, arguments)),
        wraps_result=is_wrapper(tool.output_schema),
        notes=(
            *(f"arguments: {note}" for note in (*arguments.notes, *argument_types.notes)),
            *(f"result: {note}" for note in (*result.notes, *result_types.notes)),
        ),
    )


def _examples(tool: RecordedTool, arguments: SoundSchema) -> list[Json]:
    """The tool's examples of all arguments, then its schema's."""
    root = arguments.root if isinstance(arguments.root, dict) else {}
    return [*tool.examples, *root.get("examples", ())]
