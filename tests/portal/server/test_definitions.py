"""The same two tools in both eras of the protocol: small, and with what a model has to know before its first call."""

import json
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from manifests.grants import FileGrant, NetworkGrant
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from manifests.portal_manifest import Capabilities
from portal.base.errors import NO_UPSTREAMS
from portal.base.tokens import count_tokens
from portal.server.definitions import INSTRUCTIONS, MAX_NAMED_MODULES, instructions, tool_definitions
from tests.portal.peers import opened

NOTHING = Capabilities()
EVERYTHING = Capabilities(
    files=FileGrant(workspace="data", mode="write"), network=NetworkGrant(allow=("*.example.com",))
)


def definitions_as_a_client_shows_them(
    *modules: str, capabilities: Capabilities = NOTHING, kernels: tuple[KernelName, ...] = (PYTHON,)
) -> str:
    shown = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        for tool in tool_definitions(capabilities, modules, kernels)
    ]
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("capabilities", [NOTHING, EVERYTHING])
def test_definitions_cost_at_most_400_tokens_and_instructions_50(capabilities: Capabilities) -> None:
    assert count_tokens(definitions_as_a_client_shows_them(capabilities=capabilities)) <= 400
    both = definitions_as_a_client_shows_them(capabilities=capabilities, kernels=(PYTHON, JAVASCRIPT))
    assert count_tokens(both) <= 430
    assert count_tokens(instructions((PYTHON, JAVASCRIPT))) <= 50


def test_claude_code_shows_both_tools_without_a_search_of_its_own() -> None:
    assert [tool.meta for tool in tool_definitions(NOTHING)] == [{"anthropic/alwaysLoad": True}] * 2


def test_a_model_is_told_of_a_second_language_only_where_it_is_on() -> None:
    both = definitions_as_a_client_shows_them(kernels=(JAVASCRIPT, PYTHON))
    assert both.count('"kernel":{"enum":["javascript","python"]}') == 2, "in both tools"
    assert "crm.get({id})" in both and "TypeScript" in both and "in Python never" in both
    only = definitions_as_a_client_shows_them()
    assert "kernel" not in only and "TypeScript" not in only
    assert "Python and TypeScript functions" in instructions((JAVASCRIPT, PYTHON))
    assert instructions((PYTHON,)) == INSTRUCTIONS


def test_a_model_is_told_what_scripts_reach_and_nothing_that_they_do_not() -> None:
    plain = definitions_as_a_client_shows_them()
    for name in ("sleep", "approve", "event", "recall", "emit"):
        assert f"portal.{name}(" in plain
    assert "max_tokens" in plain and "no files, no network" in plain
    granted = definitions_as_a_client_shows_them(capabilities=EVERYTHING)
    assert "files in /workspace" in granted and "portal.fetch" in granted
    assert "/workspace" not in plain and "portal.fetch" not in plain


def test_a_model_is_told_what_was_baked_in_in_few_tokens_more() -> None:
    modules = [f"a_long_module_name_{number}" for number in range(100)]
    text = definitions_as_a_client_shows_them(*modules, capabilities=EVERYTHING)
    assert modules[MAX_NAMED_MODULES - 1] in text
    assert modules[MAX_NAMED_MODULES] not in text
    assert count_tokens(text) <= 450
    assert modules[0] not in definitions_as_a_client_shows_them()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_is_told_whom_it_talks_to_and_of_a_tool_that_is_not_there(
    tmp_path: Path, mode: str
) -> None:
    async with opened(tmp_path, mode=mode) as portal:
        assert portal.client.instructions == INSTRUCTIONS
        assert portal.client.server_info and portal.client.server_info.name == "mcp-code-portal"
        for name in ("execute", "", "x" * 10_000, "\x1b[31m"):
            with pytest.raises(MCPError) as caught:
                await portal.client.call_tool(name, {})
            assert caught.value.error.code == INVALID_PARAMS
            assert len(caught.value.error.message) < 500
        assert await portal.result_of("1") == 1


async def test_both_tools_tell_who_can_help(tmp_path: Path) -> None:
    async with opened(tmp_path, {}) as portal:
        ran = await portal.run("1 + 1")
        absent = await portal.run("await tracker.create_issue()")
        found = await portal.search("anything")
    assert (ran["status"], ran["result"]) == ("ok", 2)
    assert absent["status"] == "refused"
    assert NO_UPSTREAMS in ran["notices"]
    assert found["notices"] == [NO_UPSTREAMS]
