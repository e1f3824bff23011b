"""Tools become functions of one namespace, which share equal types."""

import re
from copy import deepcopy

import pytest

from manifests.json_value import Json
from portal.library import library as libraries
from portal.library.arguments import ArgumentError, bind
from portal.library.library import Library
from portal.library.schema import SharedReduction, sound_schema
from tests.portal.library.sample_tools import an_object, arguments, function, library, source, tool
from upstreams.tools import RecordedTool

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
PLACE = an_object(table=TEXT, column=TEXT)
SIZE = an_object(width=NUMBER)


def test_order_of_an_upstreams_tools_changes_nothing() -> None:
    tools = (
        tool("b", arguments(a=TEXT)),
        tool("a"),
        tool("c", arguments(at=PLACE)),
        tool("d", arguments(to=PLACE)),
    )
    one, other = library(*tools), library(*reversed(tools))
    assert one.module("tickets") == other.module("tickets")
    assert list(one.functions) == ["tickets.a", "tickets.b", "tickets.c", "tickets.d"]
    assert "async def b(*, a: str | None = ...) -> Any: ..." in one.module("tickets")


def test_only_a_changed_upstream_is_compiled_again() -> None:
    kept, changed = source(tool("f"), namespace="kept"), source(tool("f"), namespace="changed")
    first = Library.compile([kept, changed])
    second = Library.compile([kept, source(tool("g"), namespace="changed")], first)
    assert second.namespaces["kept"] is first.namespaces["kept"]
    assert list(second.functions) == ["kept.f", "changed.g"]
    assert list(first.functions) == ["kept.f", "changed.f"]


def test_tool_listed_twice_is_there_once() -> None:
    assert len(library(tool("f", arguments(a=TEXT)), tool("f")).functions) == 1


def test_nearest_names_know_misspellings_word_order_and_other_namespaces() -> None:
    compiled = Library.compile(
        [
            source(tool("create_issue"), tool("list_issues"), tool("close"), namespace="github"),
            source(tool("search"), namespace="wiki"),
        ]
    )
    assert compiled.nearest("github.create_isue")[0] == "github.create_issue"
    assert compiled.nearest("github.issue_create")[0] == "github.create_issue"
    assert compiled.nearest("gihub.close")[0] == "github.close"
    assert compiled.nearest("github.search") == ["wiki.search"]
    assert compiled.nearest("search") == ["wiki.search"]
    assert compiled.nearest("list_isues") == ["github.list_issues"]
    assert compiled.nearest("nothing.like_it_anywhere") == []


def test_summary_goes_without_what_the_descriptions_of_all_tools_begin_with() -> None:
    opening = "This tool belongs to the travel system, which books flights. Tool description: "
    ends = ("Get a flight", "Get the nearest airport", "Set a budget. In USD")
    compiled = library(*(tool(f"t{n}", description=opening + end) for n, end in enumerate(ends)))
    assert [each.summary for each in compiled.functions.values()] == [*ends[:2], "Set a budget."]
    pair = library(tool("a", description="Get. One"), tool("b", description="Get. Two"))
    assert [each.summary for each in pair.functions.values()] == ["Get.", "Get."]


def names(*tools: RecordedTool) -> list[str]:
    return re.findall(r"^class (\w+)", library(*tools).module("tickets"), re.MULTILINE)


def test_equal_types_are_one_whatever_their_place_and_title() -> None:
    nodes = an_object(source=PLACE, parts=an_object(source=PLACE, key={**PLACE, "title": "Key"}))
    found = names(tool("load", arguments(nodes=nodes)), tool("save", arguments(graph=nodes), nodes))
    assert found == ["LoadNodesSource", "LoadNodesParts", "LoadNodes"]


@pytest.mark.parametrize(
    "other",
    [
        an_object(width=TEXT),
        an_object(width={**NUMBER, "description": "In cm."}),
        {**SIZE, "additionalProperties": NUMBER},
    ],
)
def test_types_that_differ_never_share_a_name(other: Json) -> None:
    tools = tool("a", arguments(size=SIZE)), tool("b", arguments(size=other)), tool("c", arguments(size=SIZE))
    found = names(*tools, tool("d", arguments(size=other)))
    assert len(found) == len({*found}) == 2


def pets(**more: Json) -> Json:
    pet = an_object(name=TEXT, owner={"$ref": "#/$defs/Person"})
    return {"Pet": pet, "Person": an_object(pets={"items": {"$ref": "#/$defs/Pet"}}), **more}


def reading(name: str, of: str, definitions: Json) -> RecordedTool:
    return tool(name, output_schema={"$ref": f"#/$defs/{of}", "$defs": deepcopy(definitions)})


def test_definitions_that_tools_have_alike_are_one_type_each_also_where_they_need_each_other() -> None:
    tools = reading("a", "Pet", pets()), reading("b", "Person", pets()), reading("c", "Pet", pets(Other=SIZE))
    assert sorted(names(*tools)) == ["Person", "Pet"]
    module = library(*tools).module("tickets")
    assert "    owner: Person\n" in module
    assert "    pets: list[Pet]\n" in module


def test_definition_of_the_same_name_with_another_content_keeps_its_own() -> None:
    compiled = library(
        reading("a", "Pet", pets()), reading("b", "Pet", {"Pet": SIZE}), reading("c", "Pet", pets())
    )
    returns = {name: each.returns.annotation for name, each in compiled.functions.items()}
    assert returns == {"tickets.a": "Pet", "tickets.b": "Pet2", "tickets.c": "Pet"}


def test_arguments_and_results_may_mean_different_things_by_one_name() -> None:
    schema = {**arguments(pet={"$ref": "#/$defs/Pet"}), "$defs": {"Pet": SIZE}}
    [compiled] = library(tool("a", schema, {"$ref": "#/$defs/Pet", "$defs": pets()})).functions.values()
    assert (compiled.parameters[0].annotation, compiled.returns.annotation) == ("Pet", "Pet2")


@pytest.mark.parametrize("beside", [{}, {"type": "object"}])
def test_schema_that_is_a_reference_is_what_it_refers_to(beside: Json) -> None:
    inner = arguments(("a",), a=TEXT, n={"type": "integer"})
    schema = {**beside, "$ref": "#/definitions/B", "definitions": {"B": inner}}
    compiled = function(schema, schema, name="get")
    assert compiled.brief == "tickets.get(a: str, n?: int) -> {a: str, n?: int}"
    assert bind(compiled, {"a": "1", "n": None}) == {"a": "1"}
    with pytest.raises(ArgumentError):
        bind(compiled, {"a": "1", "m": 2})


def test_what_a_definition_refers_to_outside_of_them_is_that_of_its_own_schema() -> None:
    shared = SharedReduction(2, sound_schema)
    for kind in (TEXT, NUMBER):
        schema = {
            **an_object(a=kind, b={"$ref": "#/$defs/B"}),
            "$defs": {"B": an_object(c={"$ref": "#/properties/a"})},
        }
        root = shared.sound_schema(schema)
        assert isinstance(root, dict)
        inner = root["properties"]["b"]["$ref"].schema["properties"]["c"]["$ref"]
        assert inner.schema == {"type": [kind["type"]]}


@pytest.mark.parametrize("is_wide", [True, False])
def test_shared_definitions_of_a_stranger_are_bounded(is_wide: bool) -> None:
    size = 300 if is_wide else 3000
    many = {
        f"D{n}": an_object(**{f"k{key}": TEXT for key in range(100 if is_wide else 1)}) for n in range(size)
    }
    for n in range(size - 1):
        many[f"D{n}"]["properties"]["next"] = {"$ref": f"#/$defs/D{n + 1}"}
    tools = [reading(f"t{n}", "D0", many) for n in range(2)]
    compiled = library(*tools, tool("neighbour", arguments(size=SIZE)))
    assert compiled.functions["tickets.neighbour"].parameters[0].annotation == "NeighbourSize"
    assert len(compiled.module("tickets")) < 200_000


def test_definitions_nested_too_deeply_to_be_compared_are_read_alone() -> None:
    def deep() -> Json:
        value: Json = {}
        for _ in range(5_000):
            value = {"items": value}
        return {"$ref": "#/$defs/A", "$defs": {"A": value}}

    shared = SharedReduction(2, sound_schema)
    assert all(isinstance(shared.sound_schema(deep()), dict) for _ in range(2))
    assert isinstance(sound_schema(deep()), dict)


def test_what_python_adds_to_a_module_is_no_function_of_portal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since 3.14 a module with annotations has `__annotate__`, which says nothing of its result."""
    own = [each.name for each in libraries.portal_functions(fetches=True)]
    added = "\ndef __annotate__(format, /):\n    return {}\n"
    monkeypatch.setattr(libraries, "PORTAL_STUB", libraries.PORTAL_STUB + added)
    assert [each.name for each in libraries.portal_functions.__wrapped__(fetches=True)] == own
