"""Mistakes with the library's names get a hint that leads on, and never one that leads astray."""

import pytest

from manifests.grants import Limits
from sandbox_runtime.result import RunError
from tests.sandbox_runtime.running import EchoPort, Runner, where

pytestmark = pytest.mark.anyio

NAMESPACES = ("github", "time_")
TABLE = {name: {"create_issue": f"async def {name}.create_issue() -> None"} for name in NAMESPACES}


async def error(run: Runner, script: str) -> RunError:
    async with run.sandbox.run(Limits(), where) as one:
        await one.prepare(script, NAMESPACES)
        result = await one.execute(TABLE, EchoPort())
    assert result.error is not None
    return result.error


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("x = 1\nawait gihtub.list(\n    a=1)", "namespace github?"),
        ("docs_search()", "await portal.search("),
        ("from tools import gihtub", "github, time_"),
        ("import gihtub", "namespace github?"),
    ],
)
async def test_unknown_namespace_is_led_to_the_one_that_is_there(run: Runner, script: str, told: str) -> None:
    assert told in (await error(run, script)).hint


@pytest.mark.parametrize(
    "script",
    [
        "import urllib.request\nurllib.request.urlopen('https://example.com')",
        "import socket\nsocket.create_connection(('example.com', 443))",
        "import http.client\nhttp.client.HTTPConnection('example.com').request('GET', '/')",
    ],
)
async def test_network_that_is_not_there_is_told(run: Runner, script: str) -> None:
    assert "portal.fetch" in (await error(run, script)).hint


@pytest.mark.parametrize(
    "arguments",
    [
        "await github.create_issue()",
        "await github.create_issue(), github.create_issue()",
        "*[1]",
    ],
)
async def test_gather_that_is_given_no_calls_says_what_it_takes(run: Runner, arguments: str) -> None:
    assert "asyncio.gather(*calls)" in (await error(run, f"await asyncio.gather({arguments})")).hint


@pytest.mark.parametrize("task", ["asyncio.create_task(github.create_issue())", "asyncio.current_task()"])
async def test_task_of_a_script_that_awaits_nothing_is_told_why_it_cannot_run(run: Runner, task: str) -> None:
    assert "Write `await`" in (await error(run, f"t = {task}\n1")).hint


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            "data = await github.create_issue(rows=[{'a': 1}])\ndata['cells']",
            'data is {rows: list[dict]}, from github.create_issue; write data["rows"]',
        ),
        (
            "[row['a'] for row in await github.create_issue(a=1, b=2)]",
            "github.create_issue returned {a: int, b: int}",
        ),
        ("def f(page):\n    return page.items.total\nf({'items': 1})", "page is {items: int}"),
        ("x = []\nx[3]", "x is list"),
        ("x = '{\"id\": 7}'\nx['id']", "x is str, of which json.loads makes {id: int}"),
        ("int('a')", ""),
        (
            "try:\n    x = input()\nfinally:\n    pass",
            "Write the value into the script, or ask with portal.approve.",
        ),
    ],
)
async def test_error_about_a_value_tells_what_it_is(run: Runner, script: str, told: str) -> None:
    assert (await error(run, script)).hint == told
