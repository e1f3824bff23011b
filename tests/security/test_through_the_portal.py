"""The same attacks as a client sends them, with the check of scripts off: same end, same ledger, same portal after."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp_types import CallToolResult

from manifests.json_value import Json
from tests.portal.peers import Opened, Peer, never, opened, states, text, tool
from tests.security import (
    test_crafted_bytecode,
    test_environment,
    test_gc_and_frames,
    test_host_files,
    test_import_machinery,
    test_native_modules,
    test_processes,
    test_raw_host_interface,
    test_sockets,
    test_surrogates,
    test_wrong_wit_values,
)
from tests.security.attack import REACHED, Attack
from tests.security.bait import Bait
from tests.security.hostile import MOST_SECONDS, RAW_HOST, watched

pytestmark = pytest.mark.anyio

FAMILIES = (
    test_crafted_bytecode,
    test_environment,
    test_gc_and_frames,
    test_host_files,
    test_import_machinery,
    test_native_modules,
    test_processes,
    test_raw_host_interface,
    test_sockets,
    test_surrogates,
    test_wrong_wit_values,
)
ATTACKS = [
    pytest.param(attack, id=f"{family.__name__.rpartition('test_')[2]}-{attack}")
    for family in FAMILIES
    for attack in family.ATTACKS[::7]
    if not attack.fate.limits
]
LIMITS = {
    "cpu_seconds": 0.2,
    "memory_mib": 64,
    "tool_calls": 5,
    "argument_bytes": 1000,
    "outcome_bytes": 5000,
    "result_bytes": 5000,
    "stdout_bytes": 5000,
}
# What goes over a limit after one call, the code it ends with, and the limit that is named.
BOMBS = {
    "computes": ("while True: pass", "cpu_limit", "cpu_seconds"),
    "computes_in_c": ("10 ** 10 ** 8", "cpu_limit", "cpu_seconds"),
    "searches": ("import re\nre.match('(a+)+$', 'a' * 40 + 'b')", "cpu_limit", "cpu_seconds"),
    "fills": ("bytes(10 ** 9)", "memory_limit", "memory_mib"),
    "fills_slowly": ("a = []\nwhile True: a.append('x' * 10 ** 5)", "memory_limit", "memory_mib"),
    "calls": ("while True: await git.git_log()", "tool_calls_limit", "tool_calls"),
    "sends": ("await git.git_log(a='x' * 2000)", "argument_limit", "argument_bytes"),
    "sends_raw": (
        RAW_HOST + "host.exchange('2 git.git_log ' + 'x' * 10 ** 7, 0)",
        "argument_limit",
        "argument_bytes",
    ),
    "gets": ("await git.long()", "outcome_limit", "outcome_bytes"),
    "returns": ("'x' * 10 ** 4", "result_limit", "result_bytes"),
    "returns_values": ("[1] * 2000", "result_limit", "result_bytes"),
    "emits": ("portal.emit({'type': 'text', 'text': 'x' * 10 ** 4})", "result_limit", "result_bytes"),
    "emits_raw": (RAW_HOST + "host.emit('x' * 10 ** 7)", "result_limit", "result_bytes"),
}


async def long(arguments: dict[str, Json]) -> CallToolResult:
    """A tool that answers more than may come back."""
    return text("x" * 6000)


WAITS = {
    "sleeps": "import time\ntime.sleep(600)",
    "selects": "import select\nselect.select([], [], [], 600)",
    "waits": "await git.hangs()",
    "computes": "while True: pass",
}


@pytest.fixture(scope="module")
async def portal(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder: Path = tmp_path_factory.mktemp("portal")
    git = Peer(tool("git_log"), tool("hangs"), tool("long"), hangs=never, long=long)
    upstreams = {"git": git, "files": Peer()}
    sections = {"capabilities": {"limits": LIMITS}, "server": {"check": "off"}}
    async with opened(folder, upstreams, **sections) as portal:
        yield portal


@pytest.fixture(scope="module")
async def hasty_portal(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    """A portal in which scripts have half a second."""
    git = Peer(tool("git_log"), tool("hangs"), hangs=never)
    sections = {"capabilities": {"limits": {"wall_seconds": 0.5}}, "server": {"check": "off"}}
    async with opened(tmp_path_factory.mktemp("hasty"), {"git": git}, **sections) as portal:
        yield portal


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attack_meets_the_same_fate(portal: Opened, bait: Bait, attack: Attack) -> None:
    answer = await portal.run(bait.prelude + attack.script)
    assert REACHED in answer["stdout"]
    error = answer["error"]
    if attack.fate.is_open:
        assert answer["status"] in ("ok", "error")
    elif attack.fate.code is None:
        assert (answer["status"], answer["result"]) == ("ok", attack.fate.value)
    else:
        assert error["code"] == attack.fate.code
        assert error["message"].startswith(attack.fate.begins)
    assert bait.secret not in repr(answer)
    bait.check()
    assert await portal.result_of("await git.git_log(a=1)") == {"a": 1}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_limit_is_named_with_its_place_and_ledger_and_output_are_kept(
    portal: Opened, bomb: str
) -> None:
    script, code, key = BOMBS[bomb]
    async with watched() as delay:
        answer = await portal.run(f"await git.git_log(a=1)\nprint({REACHED!r}, flush=True)\n{script}")
    assert delay.seconds < MOST_SECONDS
    assert (answer["status"], answer["error"]["code"]) == ("error", code)
    for told in (key, f"{LIMITS[key]:,}", "portal.yaml:"):
        assert told in answer["error"]["message"]
    assert answer["stdout"].startswith(REACHED)
    assert states(answer)[0] == ("git.git_log", "done")
    assert await portal.result_of("await git.git_log(a=1)") == {"a": 1}


@pytest.mark.parametrize("wait", WAITS)
async def test_waiting_ends_at_its_limit_with_ledger_and_output(hasty_portal: Opened, wait: str) -> None:
    answer = await hasty_portal.run(f"await git.git_log()\nprint({REACHED!r}, flush=True)\n{WAITS[wait]}")
    assert answer["error"]["code"] == "wall_limit"
    for told in ("wall_seconds of 0.5", "portal.yaml:"):
        assert told in answer["error"]["message"]
    assert answer["stdout"].startswith(REACHED)
    assert states(answer)[0] == ("git.git_log", "done")
    assert await hasty_portal.result_of("1") == 1


async def test_flood_of_output_is_told_with_its_limit(portal: Opened) -> None:
    answer = await portal.run("await git.git_log(a=1)\nprint('x' * 10 ** 6)\n7")
    assert (answer["status"], answer["result"]) == ("ok", 7)
    assert any("stdout_bytes" in notice and "portal.yaml:" in notice for notice in answer["notices"])


async def test_modest_script_keeps_all_limits(portal: Opened) -> None:
    script = "print('x' * 99)\nportal.emit({'type': 'text', 'text': 'x'})\n"
    script += "[(await git.git_log(a=i))['a'] for i in range(5)]"
    assert await portal.result_of(script) == [0, 1, 2, 3, 4]
