import pytest

from manifests.json_value import Json
from portal.library.full_form import full_forms
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


def test_type_with_comments_is_defined_once_in_an_answer_and_stays_a_name_in_others() -> None:
    box = {**an_object(a=NOTED), "title": "Box"}
    shelf = an_object(boxes={"items": box}, left={"type": "integer"})
    tools = library(tool("one", arguments(first=box)), tool("two", arguments(second=shelf)))
    forms = full_forms([*tools.functions.values()])
    assert "".join(forms).count("class Box(TypedDict") == 1
    assert forms[1] == "tickets.two(second?: {boxes?: list[Box], left?: int}) -> Any"


@pytest.mark.parametrize(
    "key", ["from", "a b", "x" * 200, "Literal[x]", "Literal[", "']\"", "{", "CreateIssueA"]
)
def test_any_key_and_any_literal_can_be_shown(key: str) -> None:
    inner = an_object(**{key: {"enum": [key, "other"]}})
    told = stub(function(arguments(a=inner, b={"enum": [key]}, c=an_object(inner=inner)), inner))
    assert told.count(repr(key)) >= 4 if not key.isidentifier() else key in told


def test_type_that_is_too_long_for_its_place_is_defined_with_its_parts_in_place() -> None:
    long = an_object(**{f"a_long_key_{n}": an_object(n={"type": "integer"}) for n in range(12)})
    told = stub(function(arguments(a=long)))
    assert "class CreateIssueA(TypedDict, total=False):\n    a_long_key_0: {n?: int}\n" in told
    assert told.endswith("tickets.create_issue(a?: CreateIssueA) -> Any")


def test_types_that_need_themselves_or_double_each_level_end_small() -> None:
    tree = an_object(left={"$ref": "#/$defs/Tree"}, right={"$ref": "#/$defs/Tree"})
    told = stub(function({**arguments(tree={"$ref": "#/$defs/Tree"}), "$defs": {"Tree": tree}}))
    assert told.count("Tree") == 4
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
    forms = [full_forms([compiled], depth)[0] for depth in (-1, 0, 1, 40)]
    assert [len(form) for form in forms] == sorted(len(form) for form in forms)
    assert forms.pop() == stub(compiled)
    assert forms[0].endswith('-> Any\n    """About."""')
    assert forms[1].endswith('-> {next, last}\n    """About."""')
    assert all("    a: str  # Why." in form for form in forms)
