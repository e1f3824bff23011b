from tests.portal.library.sample_tools import arguments, function, library, stub, tool

TEXT = {"type": "string"}


def test_signature_is_one_line_with_the_required_parameters_first() -> None:
    compiled = function(arguments(("title",), labels={"type": "array", "items": TEXT}, title=TEXT))
    told = "async def tickets.create_issue(*, title: str, labels: list[str] = ...) -> Any"
    assert compiled.signature == told


def test_simple_defaults_are_shown() -> None:
    compiled = function(
        arguments(
            a={"type": "integer", "default": 10},
            b={"type": "string", "default": "x"},
            c={"type": "boolean", "default": False},
            d={"type": "array", "default": []},
            e={"type": "number", "default": 1},
            f={"type": "object", "default": {}},
            g={"enum": ["up", "down"], "default": "up"},
        )
    )
    assert (
        "(*, a: int = 10, b: str = 'x', c: bool = False, d: list[Any] = [], e: float = 1,"
        " f: dict[str, Any] = {}, g: Literal['up', 'down'] = 'up')"
    ) in compiled.signature


def test_long_signature_leaves_out_optional_parameters_only() -> None:
    optional = {f"option_number_{number}": TEXT for number in range(60)}
    compiled = function(arguments(("title",), title=TEXT, **optional))
    assert len(compiled.signature) < 460
    assert "(*, title: str, option_number_0: str = ..., " in compiled.signature
    assert compiled.signature.endswith(", ...) -> Any")
    assert "option_number_59?: str" in stub(compiled)


def test_names_that_are_no_identifiers_are_renamed() -> None:
    compiled = function(arguments(**{"from": TEXT, "$meta": TEXT, "cik-A": TEXT}), name="create-issue")
    told = "tickets.create_issue(*, from_: str = ..., _meta: str = ..., cik_A: str = ...)"
    assert told in compiled.signature


def test_tool_that_names_no_arguments_takes_any() -> None:
    assert "(**others: Any)" in function({"type": "object"}).signature
    assert "(**others: int)" in function({"additionalProperties": {"type": "integer"}}).signature


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
        "    tags?: list[Any],  # Tags. (deprecated; <= 5 items)\n"
        ") -> Any"
    )


def test_module_says_that_none_omits_an_optional_argument() -> None:
    module = library(tool("f", arguments(a=TEXT))).module("tickets")
    assert "async def f(*, a: str | None = ...) -> Any: ..." in module
