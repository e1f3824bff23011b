"""What a tool declares of itself decides where nobody wrote a rule about it."""

import pytest

from manifests.decision import Decision, decide
from manifests.grants import Hints
from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.names import identifier
from tests.manifests.conftest import Load

DESTRUCTIVE = {"destructiveHint": True}


def ask(manifest: Manifest, annotations: Json, tool: str = "delete_file") -> Decision:
    hints = Hints.of(annotations)
    return decide(manifest, upstream="files", tool=tool, function=identifier(tool), hints=hints)


def of(load: Load, tools: str = "", own: str = "") -> Manifest:
    own = f", tools: {own}" if own else ""
    return load(f"upstreams: {{files: {{command: x{own}}}}}\ncapabilities: {{tools: {tools}}}\n")


@pytest.mark.parametrize(
    ("annotations", "granted"),
    [
        ({}, True),
        ({"destructiveHint": False}, True),
        ({"readOnlyHint": True}, True),
        ({"destructiveHint": None}, True),
        ({"destructiveHint": "true"}, False),
        ({"destructiveHint": 0}, False),
        (DESTRUCTIVE, False),
        ({"destructiveHint": True, "readOnlyHint": True}, False),
    ],
)
def test_only_a_tool_that_declares_itself_destructive_is_refused(
    load: Load, annotations: Json, granted: bool
) -> None:
    assert ask(of(load), annotations).granted is granted


@pytest.mark.parametrize(
    "allow",
    [
        "delete_file",
        "files.delete_file",
        "'files.*'",
        "'delete_*'",
        "'*_file'",
        "'[d]elete*'",
        "{annotation: destructive}",
        "{tool: 'files.*', annotation: destructive}",
        "{tool: delete_file, where: {path: {prefix: tmp/}}}",
    ],
)
@pytest.mark.parametrize("with_star", [False])
def test_pattern_with_a_letter_of_its_own_names_the_tool(load: Load, allow: str, with_star: bool) -> None:
    items = f"'*', {allow}" if with_star else allow
    assert ask(of(load, f"{{allow: [{items}]}}"), DESTRUCTIVE).granted


@pytest.mark.parametrize(
    ("tools", "own", "granted"),
    [
        ("{destructive: allow}", "", True),
        ("{destructive: refuse}", "", False),
        ("", "{destructive: allow}", True),
        ("{destructive: allow}", "{destructive: refuse}", False),
        ("{destructive: refuse}", "{destructive: allow}", True),
        ("{destructive: allow, deny: ['delete_*']}", "", False),
    ],
)
def test_manifest_may_allow_or_refuse_all_of_them(load: Load, tools: str, own: str, granted: bool) -> None:
    assert ask(of(load, tools, own), DESTRUCTIVE).granted is granted


def test_refusal_says_what_to_write(load: Load) -> None:
    bare = ask(of(load), DESTRUCTIVE)
    assert 'write capabilities.tools.allow: ["*", "files.delete_file"]' in bare.grant
    assert "capabilities.tools.destructive: allow" in bare.grant
    listed = ask(of(load, "{allow: ['*']}"), DESTRUCTIVE)
    assert 'add "files.delete_file" to capabilities.tools.allow' in listed.grant
    assert listed.where == "portal.yaml:2:24"


def test_explicit_deny_hides_and_the_default_shows(load: Load) -> None:
    assert ask(of(load), DESTRUCTIVE).is_shown
    assert not ask(of(load, "{deny: [delete_file]}"), DESTRUCTIVE).is_shown
    assert not ask(of(load, "{deny: [{annotation: destructive}]}"), DESTRUCTIVE).is_shown
    assert not ask(of(load, "{allow: [{annotation: readonly}]}"), DESTRUCTIVE).is_shown


@pytest.mark.parametrize(
    ("tools", "annotations", "granted"),
    [
        ("{allow: [{annotation: readonly}]}", {"readOnlyHint": True}, True),
        ("{allow: [{annotation: readonly}]}", {}, False),
        ("{allow: [{annotation: readonly}]}", {"readOnlyHint": True, "destructiveHint": True}, False),
        ("{deny: [{annotation: open_world}]}", {"openWorldHint": True}, False),
        ("{deny: [{annotation: open_world}]}", {}, True),
        ("{deny: [{tool: 'files.*', annotation: open_world}]}", {"openWorldHint": True}, False),
    ],
)
def test_tools_are_allowed_and_denied_by_what_they_declare(
    load: Load, tools: str, annotations: Json, granted: bool
) -> None:
    assert ask(of(load, tools), annotations).granted is granted
