"""docs_search shows functions as lines and as data, and tells what cannot be called now and why."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from manifests.json_value import Json
from portal.base.errors import ASK_OPERATOR
from portal.base.tokens import compact, count_tokens
from portal.catalog.docs_search import Found
from tests.portal.library.sample_tools import an_object, arguments, function
from tests.portal.peers import (
    DEADLINE_SECONDS,
    Opened,
    Peer,
    assert_begun_by_portal,
    opened,
    raw,
    schema,
    text_of,
    tool,
)
from tests.upstreams.peers import closed_port

NASTY = "first\nsecond\r\n\tthird \x00 \x0c \u2028 \x1b[31m \"\"\" ''' \\ # {x}"


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    issue = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    tracker = Peer(
        tool(
            "create_issue",
            schema("title", title={"type": "string", "description": "what it is about"}),
            description="Create an issue in the tracker.",
            output_schema=issue,
        ),
        tool("list-issues", schema(state={"enum": ["open", "closed"]}), description="List issues."),
        tool("get", schema("id", id={"type": "integer"}), description="Get an issue by its number."),
        *(tool(f"wipe_{number}", description="Wipe an issue.") for number in range(60)),
        tool("delete_issue", description="Delete an issue."),
        instructions="Issues\nand such",
    )
    nasty = Peer(
        tool("strange", schema(x={"type": "string", "description": NASTY}), description=NASTY),
        instructions=NASTY,
    )
    folder = tmp_path_factory.mktemp("docs_search")
    upstreams: dict[str, Peer | dict[str, Json]] = {
        "issue-tracker": tracker,
        "nasty": nasty,
        "dead": {"url": f"http://127.0.0.1:{closed_port()}/mcp"},
    }
    grants: Json = {"tools": {"deny": ["issue-tracker.delete_*"]}}
    async with opened(folder, upstreams, capabilities=grants) as portal:
        yield portal


async def test_an_answer_has_these_fields(portal: Opened) -> None:
    answer = await portal.search("create an issue", limit=1)
    assert answer.keys() == {"functions", "total", "notices"}
    (row,) = answer["functions"]
    assert row.keys() == {"name", "upstream", "tool", "signature", "summary"}
    assert (row["name"], row["upstream"]) == ("issue_tracker.create_issue", "issue-tracker")
    assert row["tool"] == "create_issue"
    assert answer["total"] > 1


async def test_whole_name_that_is_not_there_is_told_also_beside_what_its_words_find(portal: Opened) -> None:
    for query in ("issue_tracker.create_isue", "jira.create_issue"):
        answer = await portal.search(query)
        assert answer["functions"]
        assert any(repr(query) in notice for notice in answer["notices"])
    for query in ("issue_tracker.create_issue", "issue-tracker.list-issues", "create issue"):
        assert not any(
            "no function is called" in notice for notice in (await portal.search(query))["notices"]
        )


@pytest.mark.parametrize("detail", ["brief", "full"])
async def test_text_of_an_upstream_never_begins_a_line(portal: Opened, detail: str) -> None:
    for query in ("", "issue", "strange", "issue_tracker.create_issue", "nothing_like_it"):
        assert_begun_by_portal(await portal.search_text(query, detail=detail, limit=50))


async def test_the_text_has_a_line_for_each_function_and_comments(portal: Opened) -> None:
    for query in ("", "issue", "strange thing", "nothing_like_it"):
        for line in (await portal.search_text(query, limit=50)).splitlines():
            assert line.startswith(("issue_tracker", "nasty", "dead", "portal", "# ")), line
    told = "issue_tracker.create_issue(title: str) -> {id: int}  # Create an issue in the tracker"
    assert (await portal.search_text("create an issue", limit=1)).splitlines()[0] == told


async def test_an_empty_query_lists_the_namespaces_with_their_states(portal: Opened) -> None:
    answer = await portal.search("")
    rows = {row["upstream"]: row for row in answer["namespaces"]}
    assert rows["issue-tracker"].keys() == {"namespace", "upstream", "summary", "functions", "state"}
    assert (rows["issue-tracker"]["namespace"], rows["issue-tracker"]["state"]) == ("issue_tracker", "ready")
    assert rows["issue-tracker"]["functions"] == 63
    assert (rows["dead"]["functions"], rows["dead"]["state"]) == (0, "down")
    assert answer["functions"] == []
    lines = (await portal.search_text("")).splitlines()
    spaces = ["issue_tracker 63, upstream 'issue-tracker'", "nasty 1", "dead 0, down", "portal 15"]
    assert lines[:4] == spaces and "upstream 'dead' is down" in lines[4]


async def test_an_empty_query_lists_the_functions_of_the_upstream_that_is_asked_for(portal: Opened) -> None:
    for name in ("issue-tracker", "issue_tracker"):
        text = await portal.search_text("", upstream=name)
        assert text.count("issue_tracker.") == 5 and text.endswith("# 5 of 63") and "dead" not in text


async def test_only_upstreams_that_could_be_the_answer_say_why_they_are_not_ready(portal: Opened) -> None:
    for query, told in (("issue", False), ("dead letters", True), ("zzz", False)):
        (notice,) = [each for each in (await portal.search(query))["notices"] if "'dead'" in each]
        assert ("since" in notice) == told, query
    for asked in ({"query": "zzz", "upstream": "issue-tracker"}, {"query": "issue_tracker.create_issue"}):
        assert not any("dead" in each for each in (await portal.search(**asked))["notices"])


async def test_weak_hits_are_called_weak(portal: Opened) -> None:
    for query, is_weak in (("wipe the windows of a car", True), ("issue", False), ("create an issue", False)):
        assert ("\n# weak: " in await portal.search_text(query)) == is_weak, query


async def test_an_exact_name_answers_that_function_in_full(portal: Opened) -> None:
    answer = await portal.search("issue_tracker.create_issue")
    assert [row["name"] for row in answer["functions"]] == ["issue_tracker.create_issue"]
    assert "what it is about" in answer["functions"][0]["stub"]
    assert "what it is about" in await portal.search_text("issue_tracker.create_issue")


async def test_full_detail_adds_types_and_documentation(portal: Opened) -> None:
    brief, full = (
        await portal.search("create issue", limit=1),
        await portal.search("create issue", limit=1, detail="full"),
    )
    assert "stub" not in brief["functions"][0]
    assert "what it is about" in full["functions"][0]["stub"]
    assert full["functions"][0]["stub"].endswith(') -> {id: int}\n    """Create an issue in the tracker."""')


async def test_one_upstream_can_be_asked_by_its_key_or_its_namespace(portal: Opened) -> None:
    for name in ("issue-tracker", "issue_tracker"):
        rows = (await portal.search("issue", upstream=name, limit=3))["functions"]
        assert [row["upstream"] for row in rows] == ["issue-tracker"] * 3
    assert (await portal.search("issue", upstream="nasty"))["functions"] == []


async def test_an_unknown_upstream_finds_nothing_and_names_the_nearest(portal: Opened) -> None:
    answer = await portal.search("issue", upstream="issue-traker")
    assert answer["functions"] == []
    assert any("issue-tracker" in notice for notice in answer["notices"])


async def test_a_function_that_is_not_granted_is_not_shown_and_explained_to_those_who_name_it(
    portal: Opened,
) -> None:
    answer = await portal.search("delete issue", limit=50)
    assert "issue_tracker.delete_issue" not in [row["name"] for row in answer["functions"]]
    for query in (
        "issue_tracker.delete_issue",
        "delete_issue",
        "`issue-tracker.delete_issue`",
        "issue_tracker.delete_issue()",
        "await issue_tracker.delete_issue(id=7)",
    ):
        answer = await portal.search(query)
        told = [notice for notice in answer["notices"] if "delete_*" in notice and ASK_OPERATOR in notice]
        assert len(told) == 1, query
    answer = await portal.search("delete_issues")
    assert not any("delete_*" in notice for notice in answer["notices"])


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"limit": 51}, {"detail": "most"}, {"words": "x"}])
async def test_wrong_arguments_are_named(portal: Opened, arguments: dict[str, Json]) -> None:
    result = await portal.call("docs_search", **arguments)
    assert result.is_error
    assert next(iter(arguments)) in text_of(result)


async def test_an_answer_fits_the_budget_and_says_what_is_left_out(tmp_path: Path) -> None:
    properties = {f"property_{n}": {"type": "string", "description": "words " * 80} for n in range(15)}
    peer = Peer(*(tool(f"issue_{n}", schema(**properties), description="An issue.") for n in range(40)))
    async with opened(tmp_path, {"tracker": peer}, server={"output_tokens": 1_000}) as portal:
        for detail in ("brief", "full"):
            result = await portal.call("docs_search", query="issue", limit=40, detail=detail)
            answer = result.structured_content
            assert isinstance(answer, dict)
            assert count_tokens(text_of(result)) <= 1_000
            assert count_tokens(compact(answer)) <= 1_000
            assert len(answer["functions"]) < 40
            assert any(str(40 - len(answer["functions"])) in notice for notice in answer["notices"])
            assert_begun_by_portal(text_of(result))


@pytest.mark.parametrize("most", [500, 1_000, 4_000, 20_000])
def test_a_result_too_long_for_an_answer_is_shortened_and_arguments_are_not(most: int) -> None:
    noted = {"type": "string", "description": "Noted."}
    fields = ({f"field_{m}": an_object(**{f"a{n}_{m}": noted}) for m in range(8)} for n in range(25))
    result = an_object(**{f"group_{n}": an_object(**each) for n, each in enumerate(fields)})
    compiled = function(arguments(**{f"p{n}": noted for n in range(17)}), result, description="Places.")
    answer = Found([compiled], 1, 1, []).answer(most)
    assert count_tokens(answer.text) <= most
    assert count_tokens(compact(answer.structured)) <= most
    assert '"""Places."""' in answer.text
    assert all(f"    p{n}?: str,  # Noted.\n" in answer.text for n in range(17))
    assert ("a24_7?: str" in answer.text) == (most == 20_000)
    assert len(answer.structured["notices"]) == (most != 20_000)


async def test_a_search_waits_for_upstreams_that_start_and_then_names_them(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    upstreams: dict[str, Peer | dict[str, Json]] = {"slow": raw(waits_for=str(go)), "quick": Peer()}
    async with opened(tmp_path, upstreams, server={"start_seconds": 0.2}) as portal:
        assert not await portal.portal.fleet.settled(DEADLINE_SECONDS, {"quick"})
        answer = await portal.search("echo")
        assert [row["name"] for row in answer["functions"]] == ["quick.echo"]
        assert any("'slow' is starting" in notice for notice in answer["notices"])
    found: list[Json] = []
    async with opened(tmp_path, upstreams) as portal, anyio.create_task_group() as tasks:

        async def search() -> None:
            found.extend(row["name"] for row in (await portal.search("echo"))["functions"])

        tasks.start_soon(search)
        with anyio.fail_after(DEADLINE_SECONDS):
            await anyio.to_thread.run_sync(go.write_text, "go")
    assert sorted(found) == ["quick.echo", "slow.echo"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sleep for six hours", "sleep"),
        ("pause the script for a day", "sleep"),
        ("ask a person for approval", "approve"),
        ("human confirmation", "approve"),
        ("wait for a webhook", "event"),
        ("url of a callback", "event_url"),
        ("get a kept result", "recall"),
        ("display an image", "emit"),
        ("portal.search_text", "search_text"),
    ],
)
async def test_what_every_script_has_is_found_like_any_function(
    portal: Opened, query: str, expected: str
) -> None:
    found = [row["name"] for row in (await portal.search(query))["functions"]]
    assert f"portal.{expected}" in found[:2]


async def test_the_functions_of_the_portal_are_listed_as_far_as_they_are_granted(portal: Opened) -> None:
    rows = (await portal.search("", upstream="portal", limit=50))["functions"]
    names = {row["name"].removeprefix("portal.") for row in rows}
    assert {"approve", "blocks", "emit", "event", "recall", "sleep", "text"} <= names
    assert "fetch" not in names and len(names) == 15
    (sleep,) = (await portal.search("portal.sleep"))["functions"]
    assert sleep["signature"] == "portal.sleep(seconds=0, minutes=0, hours=0, days=0) -> None"


async def test_many_namespaces_fit_and_the_answer_says_how_many_are_left_out() -> None:
    rows: list[dict[str, Json]] = [
        {"namespace": f"space_{n}", "upstream": f"space_{n}", "summary": "", "functions": n, "state": "ready"}
        for n in range(900)
    ]
    assert "space_899 899" in Found((), 0, 0, (), rows, 16).answer(6_000).text
    text = Found((), 0, 0, (), rows, 16).answer(4_000).text
    shown = text.count("space_")
    assert count_tokens(text) <= 4_000 and shown > 400 and f"{900 - shown} more" in text
