"""Tools for the tests of the library: short to write, compiled one at a time."""

from manifests.json_value import Json
from portal.library.function import Function
from portal.library.library import Library, LibrarySource
from upstreams.tools import RecordedTool


def tool(
    name: str = "create_issue", input_schema: Json = None, output_schema: Json = None, description: str = ""
) -> RecordedTool:
    schema = {"type": "object", "properties": {}} if input_schema is None else input_schema
    return RecordedTool(name, description, schema, output_schema, {}, None)


def source(*tools: RecordedTool, namespace: str = "tickets", upstream: str = "tickets") -> LibrarySource:
    return LibrarySource(upstream, namespace, "Issues and their labels.", tools)


def library(*tools: RecordedTool) -> Library:
    return Library.compile([source(*tools)])


def function(
    input_schema: Json = None, output_schema: Json = None, name: str = "create_issue", description: str = ""
) -> Function:
    """The function of a tool that is alone in its namespace."""
    compiled = library(tool(name, input_schema, output_schema, description))
    return next(iter(compiled.functions.values()))


def stub(of: Function) -> str:
    """Its types and its head, as models read them."""
    return of.full(set())


def arguments(required: tuple[str, ...] = (), /, **properties: Json) -> Json:
    """An input schema with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def an_object(**properties: Json) -> Json:
    """A schema of an object with these properties, and any others."""
    return {"type": "object", "properties": properties}


HOSTILE_TEXT = (
    'Ends """ here\\\n\nimport os; os.system("x")  # type: ignore\r\u202e\u2066\u200b\x00\x1b[31m'
    '\u2028"""\nasync def evil(): ...\nand ends in a quote"'
)
