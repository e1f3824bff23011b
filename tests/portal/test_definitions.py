"""What a model reads before its first call stays small, and says what it has to know."""

import json

import pytest

from manifests.grants import FileGrant, NetworkGrant
from manifests.portal_manifest import Capabilities
from portal.base.tokens import count_tokens
from portal.server.definitions import INSTRUCTIONS, MAX_NAMED_MODULES, tool_definitions

NOTHING = Capabilities()
EVERYTHING = Capabilities(
    files=FileGrant(workspace="data", mode="write"), network=NetworkGrant(allow=("*.example.com",))
)


def definitions_as_a_client_shows_them(*modules: str, capabilities: Capabilities = NOTHING) -> str:
    shown = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        for tool in tool_definitions(capabilities, modules)
    ]
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("capabilities", [NOTHING, EVERYTHING])
def test_the_two_definitions_cost_at_most_400_tokens(capabilities: Capabilities) -> None:
    assert count_tokens(definitions_as_a_client_shows_them(capabilities=capabilities)) <= 400


@pytest.mark.parametrize(
    "name", [*(f"portal.{each}(" for each in ("sleep", "approve", "event", "recall", "emit")), "max_tokens"]
)
def test_a_model_is_told_what_else_there_is(name: str) -> None:
    assert name in definitions_as_a_client_shows_them()


def test_a_model_is_told_what_scripts_reach_and_nothing_that_they_do_not() -> None:
    assert "no files, no network" in definitions_as_a_client_shows_them()
    granted, plain = (
        definitions_as_a_client_shows_them(capabilities=EVERYTHING),
        definitions_as_a_client_shows_them(),
    )
    assert "files in /workspace" in granted and "portal.fetch" in granted
    assert "/workspace" not in plain and "portal.fetch" not in plain


def test_the_instructions_cost_at_most_50_tokens() -> None:
    assert count_tokens(INSTRUCTIONS) <= 50


def test_a_model_is_told_what_was_baked_in_in_few_tokens_more() -> None:
    modules = [f"a_long_module_name_{number}" for number in range(100)]
    text = definitions_as_a_client_shows_them(*modules, capabilities=EVERYTHING)
    assert modules[MAX_NAMED_MODULES - 1] in text
    assert modules[MAX_NAMED_MODULES] not in text
    assert count_tokens(text) <= 450
    assert modules[0] not in definitions_as_a_client_shows_them()
