"""Scripts as models write them, and the answers that they get."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from mcp_types import TextContent

from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import stdio_model, write_manifest

pytestmark = pytest.mark.anyio

TICKETS_SERVER = str(Path(__file__).parent / "peers/tickets_server.py")
WAITING_SERVER = str(Path(__file__).parent / "peers/waiting_server.py")
LIMITS = {"tool_calls": 30, "memory_mib": 64, "cpu_seconds": 2, "argument_bytes": 2000}


@pytest.fixture(scope="module")
async def model(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Model]:
    manifest = write_manifest(
        tmp_path_factory.mktemp("scripts"),
        {"waiting": {"command": sys.executable, "args": [WAITING_SERVER]}},
        capabilities={"limits": LIMITS, "tools": {"deny": ["waiting.fail"]}},
        server={"output_tokens": 1000},
    )
    async with stdio_model(manifest) as model:
        yield model


@pytest.fixture(scope="module")
async def tickets(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Model]:
    server = {"command": sys.executable, "args": [TICKETS_SERVER]}
    async with stdio_model(write_manifest(tmp_path_factory.mktemp("tickets"), {"tickets": server})) as model:
        yield model


@pytest.mark.parametrize(
    "code",
    [
        "await waiting.double(number=21)",
        "return await waiting.double(number=21)",
        "import waiting\nawait waiting.double(number=21)",
        "from tools import waiting\nawait waiting.double(number=21)",
        "from waiting import double\nawait double(number=21)",
        "from tools.waiting import double as twice\nx = await twice(number=21)\nx",
    ],
)
async def test_functions_are_found_however_they_are_imported(model: Model, code: str) -> None:
    assert await model.result_of(code) == 42


async def test_twenty_gathered_calls_run_in_parallel(model: Model) -> None:
    answer = await model.run(
        """
import asyncio
await asyncio.gather(*(waiting.meet(table="tea", guests=20) for _ in range(20)))
"""
    )
    assert answer["result"] == [20] * 20
    assert [call["state"] for call in answer["calls"]] == ["done"] * 20


async def test_forgotten_await_is_inserted_and_told(model: Model) -> None:
    answer = await model.run("x = waiting.double(number=4)\nx + 1")
    assert answer["result"] == 9
    assert any("await" in notice for notice in answer["notices"])


async def test_script_that_gathers_calls_itself_is_left_alone(model: Model) -> None:
    answer = await model.run(
        """
import asyncio
calls = [waiting.double(number=n) for n in range(3)]
await asyncio.gather(*calls)
"""
    )
    assert (answer["result"], answer["notices"]) == ([0, 2, 4], [])


async def test_prints_are_kept_apart_from_the_value(model: Model) -> None:
    answer = await model.run("print('brewing')\n{'tea': 'Assam'}")
    assert (answer["result"], answer["stdout"]) == ({"tea": "Assam"}, "brewing\n")


@pytest.mark.parametrize(
    "value", [2**63 + 1, -(2**63), 2**200, "\u2615 t\u00e9", [None, True, 0.1], {"a": {"b": []}}]
)
async def test_json_values_stay_whole(model: Model, value: object) -> None:
    assert await model.result_of(repr(value)) == value


async def test_the_standard_library_is_there(model: Model) -> None:
    code = "import csv, io, statistics\nstatistics.mean(int(row[0]) for row in csv.reader(io.StringIO('1\\n3\\n')))"
    assert await model.result_of(code) == 2


async def test_error_names_the_scripts_own_line(model: Model) -> None:
    answer = await model.run("def pour(cup):\n    return cup['tea']\n\npour({})")
    error = answer["error"]
    assert (error["code"], error["line"]) == ("script_error", 2)
    assert "KeyError" in error["message"]
    assert "pour(" in error["traceback"]
    assert "sandbox_runtime" not in error["traceback"]


async def test_wrong_type_is_refused_with_what_to_write(model: Model) -> None:
    answer = await model.run("await waiting.note(text='first')\nawait waiting.double(number='four')")
    assert (answer["status"], answer["calls"]) == ("refused", [])
    assert "number" in answer["error"]["message"]


async def test_unknown_function_is_refused_with_a_near_name(model: Model) -> None:
    answer = await model.run("await waiting.duble(number=1)")
    assert answer["status"] == "refused"
    assert "double" in answer["error"]["message"] + answer["error"]["hint"]


async def test_function_that_is_not_granted_is_not_called(model: Model) -> None:
    answer = await model.run("await waiting.fail(text='never')")
    assert answer["status"] != "ok"
    assert all(call["state"] == "refused" for call in answer["calls"])


async def test_more_calls_than_granted_are_refused_and_the_limit_is_named(model: Model) -> None:
    answer = await model.run("for n in range(31):\n    await waiting.double(number=n)")
    assert answer["error"]["code"] == "tool_calls_limit"
    assert "30" in answer["error"]["message"]
    assert "portal.yaml" in answer["error"]["message"] + answer["error"]["hint"]
    assert [call["state"] for call in answer["calls"]].count("done") == 30


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        ("while True: pass", "cpu_limit"),
        ("b'x' * 10**9", "memory_limit"),
        ("await waiting.note(text='x' * 3000)", "argument_limit"),
    ],
)
async def test_exceeded_limit_is_named_and_the_next_script_works(model: Model, code: str, limit: str) -> None:
    answer = await model.run(f"await waiting.note(text='before')\n{code}")
    assert answer["error"]["code"] == limit
    assert answer["calls"][0]["state"] == "done"
    assert await model.result_of("1 + 1") == 2


async def test_long_result_is_cut_to_the_budget_and_says_so(model: Model) -> None:
    answer = await model.run("[{'row': n, 'text': 'word ' * 20} for n in range(1000)]")
    assert answer["status"] == "ok"
    assert answer["result"] != []
    assert len(str(answer)) < 20_000
    assert answer["notices"]


async def test_session_keeps_variables(model: Model) -> None:
    first = await model.run("tea = 'Assam'", session="new")
    second = await model.run("tea", session=first["session"])
    assert second["result"] == "Assam"


async def test_unknown_session_is_refused(model: Model) -> None:
    answer = await model.run("1", session="somebody-elses")
    assert (answer["status"], answer["calls"]) == ("refused", [])


async def test_scripts_without_a_session_share_nothing(model: Model) -> None:
    await model.result_of("import builtins; builtins.tea = 'Assam'")
    assert (await model.run("tea"))["status"] != "ok"


async def test_emitted_text_follows_the_answer(model: Model) -> None:
    result = await model.call(
        "execute_code", {"code": "import portal\nportal.emit({'type': 'text', 'text': 'beside'})"}
    )
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    assert texts[1:] == ["beside"]


async def test_a_coroutine_that_nothing_awaits_is_told_without_files_of_the_portal(model: Model) -> None:
    answer = await model.run("async def main(): print('hi')\nx = main()\ndel x\n")
    assert "RuntimeWarning: coroutine 'main' was never awaited" in answer["stdout"]
    assert "sandbox_runtime" not in answer["stdout"] and "tracemalloc" not in answer["stdout"]


async def test_session_keeps_helpers_that_await_and_names_that_it_took_from_namespaces(model: Model) -> None:
    helper = "async def safely(call):\n    try:\n        return await call\n    except ToolError:\n        return 'no'"
    session = (await model.run(f"{helper}\nwaiting = 5", session="new"))["session"]
    answer = await model.run(
        "from tools import waiting\nawait safely(waiting.double(number=2))", session=session
    )
    assert answer["result"] == 4, answer


class Wrote(NamedTuple):
    """A script as models write it, and what it is answered."""

    script: str
    result: Json = None
    told: str = ""
    """Part of a notice if it runs; else of the error's message or hint."""
    status: str = "ok"
    """ok, refused before anything ran, or error."""


def refused(script: str, told: str) -> Wrote:
    return Wrote(script, None, told, "refused")


def failed(script: str, told: str) -> Wrote:
    return Wrote(script, None, told, "error")


WRITTEN = [
    # Arguments: by position, in one dict, of a type that certainly means another.
    Wrote("(await tickets.get_issue(3))['title']", "Issue 3", "sent as get_issue(id)"),
    Wrote("(await tickets.add_label(3, 'ui'))['labels']", ["bug", "ui"], "sent as add_label(id, label)"),
    Wrote("(await tickets.add_label(3, label='ui'))['labels']", ["bug", "ui"], "sent as"),
    Wrote("(await tickets.get_issue({'id': 3}))['id']", 3, "sent as get_issue(id)"),
    Wrote("(await tickets.get_issue(**{'id': 3}))['id']", 3),
    Wrote("(await tickets.get_issue('3'))['id']", 3, "'3' was sent as 3"),
    Wrote("(await tickets.get_issue(Id=3))['id']", 3, "sent as get_issue(id)"),
    Wrote("await tickets.set_labels(id=3, labels='ui')", ["ui"], "sent as ['ui']"),
    Wrote('await tickets.set_labels(id=3, labels=\'["ui", "bug"]\')', ["ui", "bug"], "a list of 2"),
    Wrote("await tickets.set_labels(3, {'ui', 'bug'})", ["bug", "ui"], "was a set and became a list"),
    Wrote("await tickets.search('kettle', fuzzy='true')", [6], "'true' was sent as True"),
    Wrote("await tickets.search(text=42)", [2], "42 was sent as '42'"),
    Wrote("len(await tickets.list_issues(state=None))", 3),
    Wrote("import datetime\nawait tickets.say(datetime.date(2026, 1, 2))", "2026-01-02", "ISO 8601"),
    refused("await tickets.get_issue()", "lacks argument 'id'"),
    refused("await tickets.get_issue(issue_id=3)", "it takes 'id'"),
    refused("await tickets.get_issue(id=None)", "id is None, not an int"),
    refused("await tickets.get_issue(3, id=4)", "tickets.get_issue(id: int) -> "),
    refused("await tickets.list_issues(state='opened')", "not one of 'open', 'closed'"),
    refused("await tickets.list_issues('open', 1, 5)", "tickets.list_issues("),
    # Names.
    Wrote("from tickets import get_issue\n(await get_issue(id=3))['id']", 3),
    Wrote("import tools\n(await tools.tickets.get_issue(id=3))['id']", 3),
    Wrote("(await getattr(tickets, 'get_issue')(id=3))['id']", 3),
    Wrote("(await tickets['get_issue'](id=3))['id']", 3),
    refused("call_tool('tickets.get_issue', {'id': 3})", "tickets.get_issue(id: int) -> "),
    refused("await tools.call('tickets.get_issue', id=3)", "tickets.get_issue(id: int) -> "),
    refused("await session.call_tool('get_issue', {'id': 3})", "Call functions by their names"),
    refused("get_issue(id=3)", "Write its namespace: tickets.get_issue"),
    refused("await tools.get_issue(id=3)", "Write its namespace: tickets.get_issue"),
    refused("await mcp.tickets.get_issue(id=3)", "Nearest: tickets.get_issue"),
    refused("await tickets.get_issues(id=3)", "Nearest: tickets.get_issue"),
    failed("docs_search('issues')", "portal.search"),
    refused("import requests\nrequests.get('https://example.com')", "portal.fetch"),
    # Results are plain data.
    Wrote("(await tickets.get_issue(id=3)).get('title')", "Issue 3"),
    Wrote("import json\njson.loads(await tickets.export(id=3))['title']", "Kettle leaks"),
    Wrote("import json\njson.loads(json.dumps(await tickets.export(id=3)))['id']", 3),
    Wrote("print(await tickets.get_issue(id=3))"),
    refused("issue = await tickets.get_issue(id=3)\nissue.title", 'Write ["title"].'),
    refused("[issue.title for issue in await tickets.list_issues()]", 'Write ["title"].'),
    refused("issue = await tickets.get_issue(id=3)\nissue['author'].name", 'Write ["name"].'),
    refused("x = await tickets.get_issue(id=3)\nx.content[0].text", "the data itself"),
    refused("x = await tickets.get_issue(id=3)\nx.structuredContent['title']", "the data itself"),
    refused("x = await tickets.list_issues()\nx.length", "Write len(...)."),
    refused("tickets.get_issue(id=3).then(print)", "plain data"),
    refused("async for issue in tickets.list_issues():\n    print(issue)", "in await tickets.list_issues"),
    refused("async with tickets.get_issue(id=3) as issue:\n    print(issue)", "= await tickets.get_issue"),
    Wrote("issue = await tickets.get_issue(id=3)\nissue.get('titel')"),
    # A forgotten `await`.
    Wrote("issue = tickets.get_issue(id=3)\nissue['title']", "Issue 3", "`await` was inserted"),
    Wrote("tickets.get_issue(id=3)['title']", "Issue 3", "`await` was inserted"),
    Wrote("f\"{tickets.get_issue(id=3)['title']}!\"", "Issue 3!", "`await` was inserted"),
    Wrote("[issue['id'] for issue in tickets.list_issues()]", [1, 2, 3], "`await` was inserted"),
    Wrote("[tickets.get_issue(id=n)['id'] for n in (1, 2)]", [1, 2], "`await` was inserted"),
    Wrote("ids = [tickets.get_issue(id=n) for n in (1, 2)]\nids[1]['id']", 2, "`await` was inserted"),
    Wrote("async def load():\n    return tickets.say(text='a')\nawait load()", "a", "`await` was inserted"),
    Wrote("len(tickets.list_issues())", 3, "`await` was inserted"),
    Wrote("a = tickets.say(text='a')\nb = tickets.say(text='b')\nawait asyncio.gather(a, b)", ["a", "b"]),
    Wrote("def load(n):\n    return tickets.say(text=n)\nawait asyncio.gather(load('a'))", ["a"]),
    Wrote("task = asyncio.create_task(tickets.say(text='a'))\nawait task", "a"),
    Wrote("asyncio.run(tickets.say(text='a'))", "a"),
    Wrote("asyncio.run(asyncio.gather(tickets.say(text='a')))", ["a"]),
    Wrote("async def main():\n    print(await tickets.say(text='a'))\nasyncio.run(main())"),
    refused("async def main():\n    return await tickets.say(text='a')\nmain()", "await"),
    refused("def main():\n    return tickets.get_issue(id=3)['id']\nmain()", "Make it an `async def`"),
    failed("list(map(lambda n: tickets.get_issue(id=n), [1]))", "write `await tickets.get_issue(...)`"),
    failed("a, b = asyncio.gather(tickets.say(text='a'), tickets.say(text='b'))", "was not awaited"),
    # The value of the script.
    Wrote("import datetime\n[datetime.date(2026, 1, 2)]", ["2026-01-02"], "ISO 8601"),
    Wrote("{issue['id'] for issue in await tickets.list_issues()}", [1, 2, 3], "became a list"),
    Wrote("(issue['id'] for issue in await tickets.list_issues())", [1, 2, 3], "became a list"),
    Wrote("map(str, [1, 2])", ["1", "2"], "became a list"),
    Wrote("{'a': {1: 2}.keys()}", {"a": [1]}, "became a list"),
    Wrote("import decimal\ndecimal.Decimal('1.5')", 1.5, "became a number"),
    Wrote("import decimal\ndecimal.Decimal('0.1234567890123456789')", "0.1234567890123456789", "text"),
    Wrote("import enum\nclass State(enum.Enum):\n    OPEN = 'open'\nState.OPEN", "open", "its value"),
    Wrote("b'tea', b'\\xff'", ["tea", "/w=="], "base64"),
    Wrote(
        "from dataclasses import dataclass\n@dataclass\nclass Row:\n    id: int\n[Row(1)]",
        [{"id": 1}],
        "became a dict",
    ),
    failed("class Row: ...\nRow()", "not JSON"),
    failed("import itertools\nitertools.count()", "not JSON"),
    refused("input('Name? ')", "Write the value into the script"),
    Wrote("'emit' in dir(portal)", True),
    # The text of the script.
    Wrote("```python\nawait tickets.say(text='a')\n```", "a", "Markdown fence"),
    Wrote("Here it is:\n\n```py\nawait tickets.say(text='a')\n```\nDone.", "a", "Markdown fence"),
    Wrote("    x = await tickets.say(text='a')\n    x", "a", "indented as a whole"),
    Wrote("return await tickets.say(text='a')", "a"),
    Wrote("if __name__ == '__main__':\n    print(await tickets.say(text='a'))"),
    refused("const issue = await tickets.get_issue({id: 3});", "This is JavaScript"),
    refused("tickets.list_issues().map(issue => issue.title)", "This is JavaScript"),
    refused("x = tickets.list_issues()\nconsole.log(x)", "print(...)"),
    refused("await tickets.search(text='a', fuzzy=true)", "Write True."),
]


@pytest.mark.parametrize("wrote", WRITTEN, ids=lambda wrote: wrote.script)
async def test_script_as_models_write_it_runs_or_is_told_what_to_write(tickets: Model, wrote: Wrote) -> None:
    answer = await tickets.run(wrote.script)
    assert (answer["status"], answer["result"]) == (wrote.status, wrote.result), answer
    error = answer["error"] or {"message": "", "hint": ""}
    told = answer["notices"] if wrote.status == "ok" else [error["message"] + error["hint"]]
    assert any(wrote.told in each for each in told) or not wrote.told, answer
    if wrote.status != "ok":
        assert answer["calls"] == []
