"""What a client starts, the portal starts: whatever an entry says, manifest and portal.env together say the same."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.client_files.secret_looks import looks_secret
from portal.client_files.target import Target
from tests.portal.client_files.homes import Home

RANDOM = "q7Fz3kR9vB2xM5tL8wNd"
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.sampled_from(
    [
        "${A}",
        "$$",
        "$",
        "${command:rm -rf /}",
        "$${A}",
        "--api-key",
        "--header",
        "A: b",
        "TOKEN=x",
        RANDOM,
        "$" + RANDOM,
    ]
)
VARIABLES = st.text(
    st.characters(codec="utf-8", exclude_characters="\0="), min_size=1, max_size=8
) | st.sampled_from(["TOKEN", "api-key", "A", "DATABASE_URL"])
HEADERS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12).map(
    str.strip
) | st.sampled_from(["Bearer x", "Bearer ${A}", RANDOM])
URLS = st.builds(
    "https://{}example.com/{}{}".format,
    st.sampled_from(["", "me:pw@", "me:${A}@", f"{RANDOM}@"]),
    st.sampled_from(["", "mcp", RANDOM, "a/b/"]),
    st.sampled_from(["", "?", "?api_key=x&b=c", f"?x={RANDOM}#token=y", "?a=%20b&&=c", "#"]),
)


def loaded(home: Home) -> dict[str, Json]:
    """The one upstream of the manifest that is written for what the clients have."""
    target = Target.at(home.folder / "portal.yaml")
    merged = home.merged()
    assert not merged.left_out
    text = target.text(merged.taken, home.folder)
    target.require_loading(text, merged.variables, {})
    kept = target.keep(merged.variables)
    target.write(text)
    try:
        for each in merged.variables:
            assert each.value is not None and each.name in kept
            assert not looks_secret(each.value) or each.value not in text
        (upstream,) = load_manifest(target.manifest.path, {}).portal.upstreams.values()
        return upstream.model_dump()
    finally:
        target.manifest.path.unlink()
        target.env.path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@given(
    command=st.sampled_from(["x", "/a b/${A}", "$x", "日本"]),
    args=st.lists(TEXTS, max_size=4),
    env=st.dictionaries(VARIABLES, TEXTS, max_size=3),
)
def test_a_command(folder: Path, command: str, args: list[str], env: dict[str, str]) -> None:
    home = Home(folder)
    home.servers("claude-desktop", it={"command": command, "args": args, "env": env})
    found = loaded(home)
    assert (found["command"], list(found["args"]), found["env"]) == (command, args, env)


@given(url=URLS, headers=st.dictionaries(st.sampled_from(["Authorization", "X-Api-Key", "X-Other"]), HEADERS))
def test_a_url(folder: Path, url: str, headers: dict[str, str]) -> None:
    home = Home(folder)
    home.servers("claude-desktop", it={"url": url, "headers": headers})
    found = loaded(home)
    assert (found["url"], found["headers"]) == (url, headers)
