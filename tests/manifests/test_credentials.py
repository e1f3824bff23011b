"""Which values are secrets: those that references stood for, and no others."""

import json
from pathlib import Path

from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.manifest import Manifest


def loaded(folder: Path, upstreams: Json, server: Json = None, **environ: str) -> Manifest:
    """A command gives its own line."""
    path = folder / "portal.yaml"
    path.write_text(json.dumps({"upstreams": upstreams, "server": server or {}}))
    return load_manifest(path, environ, lambda references, *_: {each: each.text for each in references})


def test_value_of_a_variable_or_a_command_is_a_secret_of_its_upstream(tmp_path: Path) -> None:
    upstreams = {
        "a": {
            "command": "x",
            "args": ["--db=postgres://app:${PASSWORD}@db/x"],
            "env": {"KEY": "${command:get key}"},
        },
        "b": {"url": "https://b.example/mcp", "headers": {"X-Key": "${TOKEN}"}},
    }
    manifest = loaded(tmp_path, upstreams, {"token": "${MINE}"}, PASSWORD="of-db", TOKEN="of-b", MINE="of-me")
    assert manifest.credentials == {"a": {"of-db", "get key"}, "b": {"of-b"}}
    assert manifest.hidden == {"of-db", "get key", "of-b", "of-me"}


def test_variable_with_a_default_is_a_setting(tmp_path: Path) -> None:
    upstreams = {"a": {"command": "x", "env": {"STAGE": "${STAGE:-production}", "KEY": "${KEY:-}"}}}
    manifest = loaded(tmp_path, upstreams, STAGE="staging", KEY="of-key")
    assert manifest.credentials == {"a": {"of-key"}}


def test_home_and_path_are_no_secrets(tmp_path: Path) -> None:
    upstreams = {"a": {"command": "x", "args": ["${HOME}/notes"], "env": {"PATH": "/opt/bin:${PATH}"}}}
    assert loaded(tmp_path, upstreams, HOME="/home/me", PATH="/usr/bin").hidden == frozenset()
