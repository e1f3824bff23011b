import ast

from tests.portal.library.sample_tools import an_object, arguments, function, library, stub, tool

TEXT = {"type": "string"}


def test_hints_follow_the_description_of_a_parameter() -> None:
    schema = arguments(
        due={"type": "string", "format": "date-time", "description": "When."},
        count={"type": "integer", "minimum": 1, "maximum": 100},
        tags={"type": "array", "maxItems": 5, "description": "Tags.", "deprecated": True},
    )
    module = library(tool(input_schema=schema)).module("tickets")
    assert "Args:\n        due: When. (date-time)\n" in module
    assert "count: 1 to 100\n" in module
    assert "tags: Tags. (deprecated; <= 5 items)\n" in module
    assert stub(function(schema)) == (
        "async def create_issue(\n"
        "    *,\n"
        "    due: str = ...,  # When. (date-time)\n"
        "    count: int = ...,  # 1 to 100\n"
        "    tags: list[Any] = ...,  # Tags. (deprecated; <= 5 items)\n"
        ") -> Any: ..."
    )


def test_a_shown_stub_leaves_out_what_is_plain_to_see() -> None:
    schema = arguments(("title",), title=TEXT, limit={"type": "integer", "default": 7})
    compiled = function(schema, an_object(id={"type": "integer"}), description="Open.")
    assert compiled.definition == (
        'async def create_issue(*, title: str, limit=7) -> CreateIssueResult:\n    """Open."""'
    )


def test_module_says_that_none_omits_an_optional_argument() -> None:
    module = library(tool("f", arguments(a=TEXT))).module("tickets")
    assert "async def f(*, a: str | None = ...) -> Any: ..." in module


def test_stub_has_only_the_types_its_function_needs() -> None:
    box = an_object(a=TEXT)
    compiled = library(tool("one", arguments(first=box)), tool("two", arguments(second=box)))
    body = ast.parse(stub(compiled.functions["tickets.one"])).body
    kinds = ast.ClassDef | ast.AsyncFunctionDef
    assert [node.name for node in body if isinstance(node, kinds)] == ["OneFirst", "one"]
