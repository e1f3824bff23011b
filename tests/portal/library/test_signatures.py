from tests.portal.library.sample_tools import arguments, function, library, stub, tool

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
        "tickets.create_issue(\n"
        "    due?: str,  # When. (date-time)\n"
        "    count?: int,  # 1 to 100\n"
        "    tags?: list,  # Tags. (deprecated; <= 5 items)\n"
        ") -> Any"
    )


def test_module_says_that_none_omits_an_optional_argument() -> None:
    module = library(tool("f", arguments(a=TEXT))).module("tickets")
    assert "async def f(*, a: str | None = ...) -> Any: ..." in module
