"""The manifests in docs/permissions.md and docs/providers.md are valid, and decide as the pages say."""

import re
from pathlib import Path

from manifests.decision import decide_flow
from manifests.manifest import narrowed
from manifests.portal_manifest import AuthSettings, OAuthSettings
from tests.manifests.conftest import DESTRUCTIVE, OPEN_WORLD, READ_ONLY, Load, ask

PERMISSIONS, PROVIDERS = (
    (Path(__file__).parents[2] / "docs" / name).read_text("utf-8")
    for name in ("permissions.md", "providers.md")
)
SECRETS = {name: f"the-{name}" for name in re.findall(r"\$\{(\w+)\}", PROVIDERS + PERMISSIONS)}


def examples(text: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


def test_example_of_permissions_decides_as_it_says(load: Load) -> None:
    manifest = load(examples(PERMISSIONS)[0], **SECRETS)
    reader = narrowed(manifest, "reader")
    for name, annotations, arguments, verdict in (
        ("files.read_file", {}, {}, "allow"),
        ("files.edit_file", DESTRUCTIVE, {}, "deny"),
        ("files.move_file", {}, {}, "deny"),
        ("files.write_file", DESTRUCTIVE, {"path": "reports/x"}, "allow"),
        ("files.write_file", DESTRUCTIVE, {"path": "reports/../x"}, "deny"),
        ("mail.search", {}, {"limit": 50}, "allow"),
        ("mail.search", {}, {"limit": 51}, "deny"),
        ("web.open", OPEN_WORLD, {}, "deny"),
    ):
        assert ask(manifest, name, annotations, arguments).verdict == verdict, (name, arguments)
    assert ask(manifest, "mail.send").asks
    assert ask(reader, "files.read_file", READ_ONLY).granted and not ask(reader, "files.read_file").granted
    flows = [decide_flow(manifest, {"mail"}, to).verdict for to in ("web", "network", "files")]
    assert flows == ["deny", "deny", "allow"]


def test_example_of_asking_decides_as_it_says(load: Load) -> None:
    manifest = load(f"upstreams: {{github: {{command: x}}}}\n{examples(PERMISSIONS)[1]}")
    assert ask(manifest, "github.merge_pull", DESTRUCTIVE).asks.endswith("github.merge_*")
    assert ask(manifest, "github.wipe", DESTRUCTIVE).asks.endswith("destructive tools")


def test_words_for_arguments_are_those_that_it_names() -> None:
    for word in ("equals", "one_of", "prefix", "suffix", "min", "max", "tool_budget", "rate_limited"):
        assert f"`{word}`" in PERMISSIONS, word


def test_keys_of_providers_exist() -> None:
    named = {*re.findall(r"`(?:server\.auth\.)?((?:redirect|send|token)_[a-z_]+)", PROVIDERS)}
    assert named - {"refresh_token"} <= {*OAuthSettings.model_fields, *AuthSettings.model_fields}
