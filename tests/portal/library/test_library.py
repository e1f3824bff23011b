from portal.library.library import Library
from tests.portal.library.sample_tools import arguments, library, source, tool

TEXT = {"type": "string"}


def test_order_of_an_upstreams_tools_changes_nothing() -> None:
    one = library(tool("b", arguments(a=TEXT)), tool("a"))
    other = library(tool("a"), tool("b", arguments(a=TEXT)))
    assert one.module("tickets") == other.module("tickets")
    assert list(one.functions) == ["tickets.a", "tickets.b"]
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
