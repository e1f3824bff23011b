"""What docs/permissions.md shows is a manifest, and decides as it says."""

import re
from pathlib import Path

from manifests.decision import decide, decide_arguments, decide_flow
from manifests.grants import Hints
from manifests.json_value import Json
from manifests.manifest import Manifest, narrowed
from tests.manifests.conftest import Load

DOC = Path(__file__).parents[2] / "docs" / "permissions.md"


def verdict(manifest: Manifest, upstream: str, tool: str, arguments: Json = None, **hints: bool) -> str:
    decision = decide(manifest, upstream=upstream, tool=tool, function=tool, hints=Hints(**hints))
    return decide_arguments(manifest, decision, arguments or {}).verdict


def test_example_decides_as_it_says(load: Load) -> None:
    example, *_ = re.findall(r"```yaml\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL)
    manifest = load(example, PORTAL_TOKEN="whole", READER_TOKEN="part")
    reader = narrowed(manifest, "reader")
    assert verdict(manifest, "files", "read_file") == "allow"
    assert verdict(manifest, "files", "edit_file", destructive=True) == "deny"
    assert verdict(manifest, "files", "move_file") == "deny"
    assert verdict(manifest, "files", "write_file", {"path": "reports/x"}, destructive=True) == "allow"
    assert verdict(manifest, "files", "write_file", {"path": "reports/../x"}, destructive=True) == "deny"
    assert verdict(manifest, "mail", "search", {"limit": 50}) == "allow"
    assert verdict(manifest, "mail", "search", {"limit": 51}) == "deny"
    assert decide(manifest, upstream="mail", tool="send", function="send", hints=Hints()).asks
    assert verdict(manifest, "web", "open", open_world=True) == "deny"
    assert [decide_flow(manifest, {"mail"}, to).verdict for to in ("web", "network", "files")] == [
        "deny",
        "deny",
        "allow",
    ]
    assert verdict(reader, "files", "read_file", readonly=True) == "allow"
    assert verdict(reader, "files", "read_file") == "deny"


def test_example_of_asking_decides_as_it_says(load: Load) -> None:
    _, example, _ = re.findall(r"```yaml\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL)
    manifest = load(f"upstreams: {{github: {{command: x}}}}\n{example}")
    merge, wipe = (
        decide(manifest, upstream="github", tool=each, function=each, hints=Hints(destructive=True))
        for each in ("merge_pull", "wipe")
    )
    assert merge.granted and merge.asks.endswith("github.merge_*")
    assert wipe.granted and wipe.asks.endswith("destructive tools")


def test_example_of_approvers_names_who_exists(load: Load) -> None:
    example = re.findall(r"```yaml\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL)[-1]
    assert len(load(example, OPS_TOKEN="ops").portal.capabilities.approvers) == 3


def test_words_for_arguments_are_those_that_it_names() -> None:
    text = DOC.read_text("utf-8")
    for word in ("equals", "one_of", "prefix", "suffix", "min", "max", "tool_budget", "rate_limited"):
        assert f"`{word}`" in text, word
