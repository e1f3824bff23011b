import pytest

from manifests.json_value import Json
from tests.portal.library.sample_tools import an_object, arguments, function, library, stub, tool

TEXT = {"type": "string"}
NOTED = {"type": "string", "description": "Why."}


def test_head_is_lean_and_small_types_are_in_place() -> None:
    label = {**an_object(name=TEXT, color={"enum": ["red", "b]'lue"]}), "required": ["name"]}
    schema = arguments(
        ("title",), title=TEXT, limit={"type": "integer", "default": 7}, labels={"items": label}
    )
    compiled = function(schema, an_object(id={"type": "integer"}), description="Open.")
    told = (
        "tickets.create_issue(title: str, limit=7, labels?: list[{name: str, color?: 'red'|\"b]'lue\"}])"
        ' -> {id?: int}\n    """Open."""'
    )
    assert stub(compiled) == told


def test_comments_and_long_objects_are_told_once_in_an_answer() -> None:
    box = {**an_object(a=NOTED), "title": "Box"}
    long = an_object(**{f"a_long_key_{n}": an_object(n={"type": "integer"}) for n in range(12)})
    shelf = an_object(boxes={"items": box}, left=long)
    compiled, told = (
        library(tool("one", arguments(first=box, long=long)), tool("two", arguments(), shelf)),
        set[str](),
    )
    first, second = (each.full(told) for each in compiled.functions.values())
    assert "    first?: {\n        a?: str,  # Why.\n    },\n" in first
    assert "        a_long_key_11?: {n?: int},\n" in first
    assert "    boxes?: list[{a?: str}],\n    left?: {a_long_key_0?, " in second


@pytest.mark.parametrize(
    "key", ["from", "a b", "x" * 200, "Literal[x]", "Literal[", "']\"", "{", "CreateIssueA"]
)
def test_any_key_and_any_literal_can_be_shown(key: str) -> None:
    inner = an_object(**{key: {"enum": [key, "other"]}})
    told = stub(function(arguments(a=inner, b={"enum": [key]}, c=an_object(inner=inner)), inner))
    assert told.count(repr(key)) >= 4 or len(key) > 60 or key.isidentifier()


def test_types_that_need_themselves_or_double_each_level_end_small() -> None:
    tree = an_object(left={"$ref": "#/$defs/Tree"}, right={"$ref": "#/$defs/Tree"})
    told = stub(function({**arguments(tree={"$ref": "#/$defs/Tree"}), "$defs": {"Tree": tree}}))
    assert told == "tickets.create_issue(tree?: {left?: Any, right?: Any}) -> Any"
    levels = {
        f"L{n}": an_object(a={"$ref": f"#/$defs/L{n + 1}"}, b={"$ref": f"#/$defs/L{n + 1}"})
        for n in range(500)
    }
    told = stub(function({**arguments(a={"$ref": "#/$defs/L0"}), "$defs": levels}))
    assert len(told) < 100_000


def deep(levels: int) -> Json:
    inner = an_object(value=NOTED, other=NOTED)
    for _ in range(levels):
        inner = an_object(next=inner, last=inner)
    return inner


def test_result_is_shortened_from_its_depths_and_arguments_never() -> None:
    noted = an_object(a=NOTED)
    compiled = function(arguments(a=noted), deep(5), description="About.")
    forms = [compiled.full(set(), depth) for depth in (-1, 0, 1, 40)]
    assert [len(form) for form in forms] == sorted(len(form) for form in forms)
    assert forms.pop() == stub(compiled)
    assert forms[0].endswith('-> Any\n    """About."""')
    assert forms[1].endswith('-> {next?, last?}\n    """About."""')
    assert all("    a?: str,  # Why." in form for form in forms)


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
