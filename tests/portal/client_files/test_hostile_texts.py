"""No text of a client's file becomes more in portal.yaml than the text that it was for its client."""

import glob
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NoReturn

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.references import SecretReference
from manifests.yaml_source import read_yaml
from portal.client_files.target import Target
from tests.portal.client_files.homes import Home

ENVIRON: Final = {"A": "filled"}
FILLED_IN: Final[Mapping[str, str]] = {
    "claude-desktop": "(?!)",
    "codex": "(?!)",
    "codex-project": "(?!)",
    "claude-code": r"\$\{A(:-[^}]*)?\}",
    "claude-code-project": r"\$\{A(:-[^}]*)?\}",
    "cursor": r"\$\{env:A\}",
    "vscode": r"\$\{env:A\}",
    "windsurf": r"\$\{env:A\}",
    "gemini": r"\$\{A(:-[^}]*)?\}|\$A(?![A-Za-z0-9_])",
    "gemini-project": r"\$\{A(:-[^}]*)?\}|\$A(?![A-Za-z0-9_])",
}
"""What each client fills in, of these texts."""

MARKS: Final = [
    "$",
    "$$",
    "${",
    "{",
    "}",
    "[",
    "]",
    "*",
    "'",
    '"',
    "\\",
    "&a",
    "*a",
    "!!str",
    "<<",
    "---",
    "null",
]
OURS: Final = ["${command:touch pwned}", "${keyring:a/b}", "${A}", "${A:-b}", "${env:A}", "$A", "command:a}"]
BLANKS: Final = [
    "\n  evil: {command: x}\n",
    "\n",
    "\t",
    " ",
    "# ",
    ": ",
    "- ",
    "\x1b[2J",
    "\x7f",
    "\x85",
    "\u2028",
    "日",
]

IS_SET = re.compile(r"(?!.*\$A\w)", re.DOTALL).match
"""Of another variable, as parts may make one by chance, nobody knows what it would have been."""
VISIBLE = st.lists(st.sampled_from(OURS) | st.sampled_from(MARKS), max_size=3).map("".join).filter(IS_SET)
TEXTS = (
    st.lists(st.sampled_from(OURS) | st.sampled_from(MARKS + BLANKS), max_size=3).map("".join).filter(IS_SET)
)
LINES = VISIBLE.map(str.strip)
FILTERS = st.lists(TEXTS.filter(bool), max_size=2)
NAMES = TEXTS.filter(lambda text: text and "=" not in text)
EITHER: Final = {
    "includeTools": FILTERS,
    "excludeTools": FILTERS,
    "timeout": TEXTS,
    "trust": TEXTS,
    "${command:x}": TEXTS,
}
COMMANDS = st.fixed_dictionaries(
    {"command": TEXTS.map("/x".__add__)},
    optional={
        "args": st.lists(TEXTS, max_size=2),
        "env": st.dictionaries(NAMES, TEXTS, max_size=2),
        "cwd": TEXTS.map("/x".__add__),
        **EITHER,
    },
)
URLS = st.fixed_dictionaries(
    {"url": VISIBLE.map("https://x.example/".__add__)},
    optional={
        "headers": st.dictionaries(st.sampled_from(["X-A", "X-B"]), LINES),
        "oauth": st.fixed_dictionaries({"scopes": st.lists(TEXTS, max_size=2)}),
        **EITHER,
    },
)


def forbidden(references: Collection[SecretReference], folder: Path) -> NoReturn:
    raise AssertionError(references)


def write(home: Home, client: str, name: str, entry: Mapping[str, Json]) -> None:
    if not client.startswith("codex"):
        home.servers(client, **{name: entry})
        return
    theirs = {"headers": "http_headers", "includeTools": "enabled_tools", "excludeTools": "disabled_tools"}
    rows = [f"{toml(theirs.get(key, key))} = {toml(value)}\n" for key, value in entry.items()]
    home.write(client, f"[mcp_servers.{toml(name)}]\n{''.join(rows)}")


def toml(value: Json) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml(key)} = {toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value).replace("\x7f", "\\u007f")


def loaded(home: Home) -> Mapping[str, Json] | None:
    """The upstream that the portal has then; None if the entry was left out."""
    target = Target.at(home.folder / "portal.yaml")
    merged = home.merged()
    if merged.left_out:
        return None
    text = target.text(merged.taken, home.folder)
    target.require_loading(text, merged.variables, ENVIRON)
    data = read_yaml(text).data
    assert yaml.safe_load(text) == data and list(data) == ["upstreams"]
    assert list(data["upstreams"]) == [each.name for each in merged.taken]
    target.keep(merged.variables)
    target.write(text)
    try:
        (upstream,) = load_manifest(target.manifest.path, ENVIRON, forbidden).portal.upstreams.values()
        return dict(upstream.model_dump())
    finally:
        target.manifest.path.unlink()
        target.env.path.unlink(missing_ok=True)


def meant(entry: Mapping[str, Json], filled_in: str) -> Mapping[str, Json]:
    """What the client would have started or reached, and which tools it would have let through."""

    def text(value: str) -> str:
        return re.sub(filled_in, ENVIRON["A"], value)

    found: dict[str, Json] = {
        "command": text(entry.get("command", "")),
        "args": tuple(map(text, entry.get("args", ()))),
        "env": {name: text(value) for name, value in entry.get("env", {}).items()},
        "url": text(entry.get("url", "")),
        "headers": {name: text(value) for name, value in entry.get("headers", {}).items()},
        "allow": tuple(map(glob.escape, entry.get("includeTools", ["*"]))),
        "deny": tuple(map(glob.escape, entry.get("excludeTools", ()))),
    }
    found["allow"] = found["allow"] if "includeTools" in entry else ("*",)
    scope = " ".join(entry.get("oauth", {}).get("scopes", ()))
    found["scope"] = scope if scope and "${" not in scope else None
    found["cwd"] = str(Path(entry["cwd"])) if "cwd" in entry else None
    return found


def said(upstream: Mapping[str, Json]) -> Mapping[str, Json]:
    keys: dict[str, Json] = {"command": "", "args": (), "env": {}, "url": "", "headers": {}, "cwd": None}
    found = {key: upstream.get(key, nothing) for key, nothing in keys.items()}
    tools = upstream["tools"]
    scope = (upstream.get("oauth") or {}).get("scope")
    return {**found, "allow": tools["allow"], "deny": tools["deny"], "scope": scope}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("client", FILLED_IN)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=TEXTS, entry=COMMANDS | URLS)
def test_a_text_of_a_file_is_what_it_was_for_its_client(
    folder: Path, client: str, name: str, entry: Mapping[str, Json]
) -> None:
    home = Home(folder / client, ENVIRON)
    write(home, client, name, entry)
    found = loaded(home)
    assert found is None or said(found) == meant(entry, FILLED_IN[client])


@given(text=TEXTS)
def test_the_folder_that_a_file_names_is_a_folder(folder: Path, text: str) -> None:
    home = Home(folder / "folders", ENVIRON)
    servers = {"mcpServers": {"it": {"command": "./x"}}}
    home.write("claude-code", json.dumps({"projects": {f"/p/{text}": servers}}))
    found = loaded(home)
    assert found is not None and found["cwd"] == str(Path(f"/p/{text}"))
