"""Result types of tools that declare none: learned from real results, stored, and never containing values."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from mcp_types import CallToolResult

from manifests.json_value import Json
from tests.portal.peers import Opened, Peer, opened, schema, structured, text, tool

CANARY = "canary7f3a"
ISSUE = {"id": 7, "title": "x", "labels": [{"name": "bug"}]}


def answering(*values: Json) -> Callable[[dict[str, Json]], Awaitable[CallToolResult]]:
    """A tool that answers these, one after the other and the last for ever."""
    left = list(values)

    async def act(arguments: dict[str, Json]) -> CallToolResult:
        value = left.pop(0) if len(left) > 1 else left[0]
        return text(value) if isinstance(value, str) else structured(value)

    return act


async def stub(portal: Opened, name: str) -> str:
    [row] = (await portal.search(name, detail="full"))["functions"]
    assert row["name"] == name
    return str(row["stub"])


async def test_a_result_is_marked_in_the_stub_also_of_the_next_portal(tmp_path: Path) -> None:
    marked = "-> {id: int, title: str, labels: list[{name: str}]}  # observed in earlier calls"
    for before in ("-> Any", marked):
        peer = Peer(tool("get_issue"), get_issue=answering(ISSUE))
        async with opened(tmp_path, {"tickets": peer}) as portal:
            assert before in await stub(portal, "tickets.get_issue")
            await portal.result_of("await tickets.get_issue()")
            assert marked in await stub(portal, "tickets.get_issue")


async def test_no_value_of_a_result_is_ever_on_disk(tmp_path: Path) -> None:
    results: list[Json] = [
        {"text": CANARY, "items": [CANARY, {"name": CANARY}], "by_mail": {f"{CANARY}@example.com": {"a": 1}}},
        {CANARY: {"n": 1}, f"{CANARY}_2": {"n": 2}},
        {"people": {CANARY: 3}, "nested": {"tokens": {CANARY: CANARY}}},
        {"deep": json.loads('{"inner": [' * 30 + f'"{CANARY}"' + "]}" * 30)},
        *(f"words and {CANARY}", json.dumps({CANARY: 1, "number": 2}), [[CANARY]]),
    ]
    peer = Peer(tool("get"), tool("others"), get=answering(results[0]), others=answering(*results[1:]))
    async with opened(tmp_path, {"tickets": peer}, server={"observed_folder": "kept"}) as portal:
        await portal.run(f"await tickets.get(key={CANARY!r})")
        await portal.run("[await tickets.others() for _ in range(6)]")
        known = await stub(portal, "tickets.get") + await stub(portal, "tickets.others")
        assert CANARY not in contents(portal.portal.catalog._checker._types._folder)
    assert CANARY not in known and "by_mail: dict[str, " in known
    assert "by_mail" in contents(tmp_path / "kept") and CANARY not in contents(tmp_path)


async def test_a_script_that_uses_what_was_not_seen_runs_and_is_told(tmp_path: Path) -> None:
    peer = Peer(tool("get_issue"), get_issue=answering(ISSUE, {**ISSUE, "state": "open"}))
    async with opened(tmp_path, {"tickets": peer}) as portal:
        await portal.result_of("await tickets.get_issue()")
        answer = await portal.run("(await tickets.get_issue())['state']")
        assert (answer["status"], answer["result"]) == ("ok", "open")
        [notice] = answer["notices"]
        assert "'state' is not a known field of" in notice
        known = await portal.run("(await tickets.get_issue())['title']")
        assert known["notices"] == []


def contents(folder: Path) -> str:
    """Names and texts of everything below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "".join(f"{file.name}\n{file.read_bytes().decode(errors='replace')}" for file in files)


async def test_a_result_that_is_not_as_declared_is_told_without_its_values(tmp_path: Path) -> None:
    item = schema("id", "state", id={"type": "integer"}, state={"enum": ["open", "closed"]})
    declared = schema("items", items={"type": "array", "items": item})
    wrong = {"items": [{"id": CANARY, "state": CANARY}, {"id": 1, f"{CANARY}@example.com": 1}]}
    peer = Peer(
        tool("wrong", output_schema=declared),
        tool("right", output_schema=declared),
        wrong=answering(wrong),
        right=answering({"items": [{"id": 1, "state": "open"}]}),
    )
    for _ in range(2):  # the second portal knows it from the disk
        async with opened(tmp_path, {"store": peer}, server={"observed_folder": "kept"}) as portal:
            assert await portal.result_of("await store.wrong()") == wrong
            await portal.result_of("await store.right()")
            told = await stub(portal, "store.wrong")
            assert "# earlier results differed: ['items'][]['id'] is a str" in told
            assert "differed" not in await stub(portal, "store.right")
            [note] = portal.portal.catalog.snapshot.library.diagnostics
            assert note.startswith("store.wrong: earlier results differed: ")
            assert "['items'][] lacks 'state'" in note
            assert CANARY not in note + told
        assert CANARY not in contents(tmp_path)


TEXT = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}


def saying(*texts: str) -> Peer:
    """A tool that declares a text, as FastMCP does for `-> str`."""
    waiting = list(texts)

    async def get(arguments: dict[str, Json]) -> CallToolResult:
        said = waiting.pop(0) if waiting[1:] else waiting[0]
        return text(said).model_copy(update={"structured_content": {"result": said}})

    return Peer(tool("get", output_schema=TEXT), get=get)


async def test_json_in_a_declared_text_is_data_once_it_was_that_each_time(tmp_path: Path) -> None:
    sent, parse = json.dumps(ISSUE), "import json\njson.loads(await tickets.get())['id']"
    async with opened(tmp_path, {"tickets": saying(sent)}) as portal:
        assert await stub(portal, "tickets.get") == "tickets.get(**others) -> str"
        assert await portal.result_of(parse) == 7
        assert "-> str  # JSON: {id: int, title: str, labels: list[" in await stub(portal, "tickets.get")
        for _ in range(2):
            assert await portal.result_of(parse) == 7
            told = await stub(portal, "tickets.get")
        assert told.startswith(
            "tickets.get(**others) -> {id: int, title: str, labels: list[{name: str}]}  # JSON in a text"
        )
        assert await portal.result_of("r = await tickets.get()\n[r['id'], portal.text(r)]") == [7, sent]
        assert await portal.result_of(parse) == 7
    async with opened(tmp_path, {"tickets": saying(sent, "gone")}) as portal:
        assert await portal.result_of("(await tickets.get())['id']") == 7
        assert await portal.result_of("r = await tickets.get()\nr") == "gone"
        assert await portal.result_of("(await tickets.get())") == "gone"
        assert "} | str  # JSON in a text" in await stub(portal, "tickets.get")


async def test_nothing_is_learnt_where_the_manifest_says_so(tmp_path: Path) -> None:
    settings = {"observed_folder": "kept", "observe_results": False}
    upstreams = {"tickets": saying("[1]"), "store": Peer(tool("get"), get=answering(ISSUE))}
    async with opened(tmp_path, {**upstreams}, server=settings) as portal:
        for _ in range(4):
            assert await portal.result_of("await store.get()\nawait tickets.get()") == "[1]"
        assert "-> Any" in await stub(portal, "store.get")
    assert not (tmp_path / "kept").exists()
