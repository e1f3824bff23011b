"""Five mistakes in JavaScript: refused before anything is called, or told where they show, if there is no compiler."""

from pathlib import Path

import pytest

from manifests.json_value import Json
from portal.catalog.check.typescript_server import find_typescript
from tests.portal.peers import Opened, Peer, opened, schema, tool

pytestmark = pytest.mark.anyio

ON: Json = {"kernels": {"javascript": True}}
STATE: Json = {"type": "string", "enum": ["open", "closed"]}
ISSUE = schema("id", "title", id={"type": "integer"}, title={"type": "string"})
LIST: Json = {**schema(repo={"type": "string"}, state=STATE), "additionalProperties": False}
MISTAKES = [
    (
        "const who = {a: 1}\nawait tickets.get({id: who})",
        "invalid_arguments",
        "id number tickets.get({id: number})",
    ),
    ("const state = 'opne'\nawait tickets.list({state})", "invalid_arguments", 'state "opne" "open"'),
    ("const t = await tickets.get({id: 1})\nt.tittle", "unknown_field", "'tittle' 'title'"),
    ("const id = 1\nawait tickets.gett({id})", "unknown_function", "'gett' tickets.get({id: number})"),
    (
        "class A { async get(id) { return await tickets.get({id}) } }\nnew A().get(1).title",
        "not_awaited",
        "await",
    ),
]


def tickets() -> Peer:
    return Peer(tool("get", schema("id", id={"type": "integer"}), output_schema=ISSUE), tool("list", LIST))


async def error_of(portal: Opened, code: str) -> dict[str, Json]:
    error = await portal.error_of(code, kernel="javascript")
    return {**error, "told": f"{error['message']} {error['hint']}"}


@pytest.mark.skipif(find_typescript() is None, reason="the extra `typescript` is not installed")
async def test_mistakes_are_refused_before_any_call_with_line_and_nearest_name(tmp_path: Path) -> None:
    peer = tickets()
    async with opened(tmp_path, {"tickets": peer}, server=ON) as portal:
        for script, _, words in MISTAKES:
            error = await error_of(portal, script)
            assert (error["code"], "line 2" in error["told"]) == ("check_failed", True), error
            assert [word for word in words.split() if word not in error["told"]] == [], error
    assert peer.calls == []


async def test_without_a_check_the_same_mistakes_fail_at_the_call_and_can_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = tickets()
    catching = "try {{\n{} }} catch (e) {{ [e.code ?? e.name, `${{e.message}} ${{e.hint}}`] }}"
    async with opened(tmp_path, {"tickets": peer}, server={**ON, "check": "off"}) as portal:
        for script, code, words in MISTAKES:
            if code in ("invalid_arguments", "unknown_function"):
                error = await error_of(portal, script)
                assert error["line"] == 2, error
                caught, told = await portal.result_of(catching.format(script), kernel="javascript")
                assert caught == code, told
                assert words.split()[0].strip("'") in told and "tickets." in told
    assert peer.calls == []
