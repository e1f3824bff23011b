"""Scripts read the resources and prompts of upstreams, as far as the manifest's rules let them."""

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.base.errors import ASK_OPERATOR
from portal.cli import check, explain
from portal.cli.terminal import Terminal
from tests.portal.chatty_server import SECRET, Chatty
from tests.portal.clients import chatty_upstreams, one_chatty
from tests.portal.peers import Opened, opened, raw, states


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    async with (
        chatty_upstreams() as upstreams,
        opened(tmp_path_factory.mktemp("readings"), {**upstreams, "silent-one": raw()}) as portal,
    ):
        yield portal


@pytest.mark.parametrize("upstream", ["http_modern", "stdio_legacy"])
async def test_a_script_lists_resources_and_reads_them(portal: Opened, upstream: str) -> None:
    code = f"""
import portal
found = await portal.resources("{upstream}")
contents = [await portal.read_resource(row) for row in found["resources"]]
[found, contents]
"""
    found, contents = await portal.result_of(code)
    of = {"upstream": upstream}
    assert found == {
        "resources": [
            {"uri": "note://a", "name": "a", "mimeType": "text/plain", "size": 5, **of},
            {"uri": "note://b?x=1#y", "name": "b", "description": "the second", **of},
        ],
        "templates": [{"uriTemplate": "note://{name}", "name": "any note", **of}],
        "notices": [],
    }
    assert [each["text"] for each, _ in contents] == ["text of note://a", "text of note://b?x=1#y"]
    assert (contents[0][1]["blob"], contents[0][1]["mimeType"]) == ("AAEC", "image/png")


@pytest.mark.parametrize("upstream", ["http_modern", "stdio_legacy"])
async def test_a_script_lists_prompts_and_fills_them_in(portal: Opened, upstream: str) -> None:
    code = f"""
found = await portal.prompts({upstream})
[found, await portal.get_prompt(found["prompts"][0], {{"who": "Ada"}}),
 await portal.get_prompt("greet", {{"who": "Bob"}}, upstream={upstream})]
"""
    found, one, other = await portal.result_of(code)
    arguments = [{"name": "who", "required": True, "description": "whom to greet"}]
    row = {"name": "greet", "description": "Greets.", "arguments": arguments, "upstream": upstream}
    assert found == {"prompts": [row], "notices": []}
    assert one["description"] == "Greets."
    assert one["messages"] == [{"role": "user", "content": {"type": "text", "text": "Greet Ada!"}}]
    assert other["messages"][0]["content"]["text"] == "Greet Bob!"


@pytest.mark.parametrize(
    ("call", "code", "state"),
    [
        ("read_resource('note://missing', 'stdio_legacy')", "upstream_refused", "failed"),
        ("read_resource('note://a')", "invalid_arguments", "refused"),
        ("read_resource(7, 'http_modern')", "invalid_arguments", "refused"),
        ("read_resource('note://a', 'nobody')", "invalid_arguments", "refused"),
        ("get_prompt('greet', {'who': 7}, 'http_modern')", "invalid_arguments", "refused"),
        ("read_resource('x', 'silent-one')", "upstream_refused", "failed"),
        ("read_resource('note://big', 'stdio_modern')", "outcome_limit", "done"),
    ],
)
async def test_what_cannot_be_read_tells_the_reason(portal: Opened, call: str, code: str, state: str) -> None:
    script = f"try:\n    await portal.{call}\nexcept ToolError as error:\n    print(error.code, error)"
    answer = await portal.run(f"import portal\nimport typing\nportal: typing.Any\n{script}")
    assert answer["stdout"].split(" ")[0] == code
    assert SECRET not in str(answer)
    assert states(answer) == [(f"portal.{call.split('(')[0]}", state)]


@asynccontextmanager
async def one_upstream(folder: Path, **sections: Json) -> AsyncIterator[tuple[Opened, Chatty]]:
    async with one_chatty() as (up, upstreams):
        entry = {**upstreams["up"], **sections.pop("own", {})}
        async with opened(folder, {"up": entry}, **sections) as portal:
            yield portal, up


READ = "await portal.read_resource('note://a')"
RULES: dict[str, dict[str, Json]] = {
    "denied by its upstream": {"own": {"tools": {"deny": ["resources/read"]}}},
    "denied for what it is": {"capabilities": {"tools": {"deny": [{"annotation": "readonly"}]}}},
    "arguments that do not fit": {
        "capabilities": {
            "tools": {"allow": ["*", {"tool": "up.resources/read", "where": {"uri": {"prefix": "note://b"}}}]}
        }
    },
    "used up": {"capabilities": {"tools": {"budgets": [{"tool": "up.resources/read", "calls": 0}]}}},
    "a flow": {"capabilities": {"flows": [{"from": ["up"], "not_to": ["up"]}]}},
}


@pytest.mark.parametrize("name", RULES)
async def test_a_rule_keeps_a_resource_from_scripts(tmp_path: Path, name: str) -> None:
    async with one_upstream(tmp_path, **RULES[name]) as (portal, up):
        before = "await portal.prompts()\n" if name == "a flow" else ""
        answer = await portal.run(f"import portal\n{before}{READ}")
        assert answer["error"]["code"] == ("tool_budget" if name == "used up" else "not_granted")
        assert states(answer)[-1] == ("portal.read_resource", "refused")
        assert not [read for read in up.reads if "read" in read]
        assert ASK_OPERATOR in answer["error"]["hint"]


async def test_explain_and_check_know_the_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = {"deny": ["up.resources/read", "prompts/*", "up.nothing"]}
    async with one_upstream(tmp_path, capabilities={"tools": tools}):
        manifest = load_manifest(tmp_path / "portal.yaml", {})
        options = {"json": False, "profile": None, "arguments": None, "strict": False}
        told = {}
        for name in ("up.resources/read", "up.resources/list", "up.prompts/get"):
            await explain.command(manifest, Namespace(name=name, **options), Terminal())
            told[name] = capsys.readouterr().out
        assert "refused" in told["up.resources/read"] and "refused" in told["up.prompts/get"]
        assert "granted" in told["up.resources/list"]
        await check.command(manifest, Namespace(upstream=None, **options), Terminal())
        said = "".join(capsys.readouterr())
        assert "up.nothing" in said
        assert "resources/read' matches no tool" not in said and "prompts/*' matches no tool" not in said
