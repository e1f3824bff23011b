"""Scripts do not get what is the portal's own: as their workspace it is refused; through an upstream `check` warns."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.decision import ListedTool
from manifests.errors import ManifestError, Problem
from manifests.exposure import writable_files
from manifests.grants import Hints
from manifests.loader import load_manifest
from manifests.references import stand_in

FILES = "capabilities: {{files: {{workspace: {}, mode: {}}}}}\n"
WRITES = ListedTool("write_file", "write_file", Hints(), frozenset({"path", "content"}))
ADDS = ListedTool("add", "add", Hints(), frozenset({"profile", "security", "text"}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a manifest, with folders in it and beside it, and links to it."""
    folder = tmp_path / "portal"
    (folder / "data" / "sub").mkdir(parents=True)
    (tmp_path / "away").mkdir()
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "away" / "up").symlink_to(tmp_path)
    return folder


def problems(folder: Path, text: str, name: str = "portal.yaml", **environ: str) -> list[Problem]:
    (folder / name).write_text(text)
    try:
        load_manifest(folder / name, {"HOME": str(folder.parent / "home"), **environ})
    except ManifestError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("workspace", [".", "..", "data/..", "/", "../link"])
def test_workspace_with_the_manifest_is_refused(folder: Path, mode: str, workspace: str) -> None:
    [problem] = problems(folder, FILES.format(workspace, mode))
    assert (problem.key, problem.line) == ("capabilities.files.workspace", 1)
    for name in ("portal.yaml", "portal.env", "portal.lock"):
        assert name in problem.message
    assert str(folder) not in str(problem)


@pytest.mark.parametrize("more", [
    "audit: {to: data/a.jsonl}", "audit: {to: inside/a.jsonl}", "server: {observed_folder: data/sub}",
    "server: {component: data/x.wasm}", "runs: {store: data/runs.db}", "middleware: ['data.own:mask']",
])  # fmt: skip
def test_workspace_with_something_else_of_the_portal_in_it_is_refused(folder: Path, more: str) -> None:
    (folder / "inside").symlink_to(folder / "data" / "sub")
    [problem] = problems(folder, FILES.format("data", "write") + more)
    assert problem.key == "capabilities.files.workspace"


def test_what_is_beside_the_workspace_is_fine(folder: Path) -> None:
    own = "audit: {to: a.jsonl}\nruns: {store: runs.db}\nmiddleware: ['own:mask']\n"
    assert problems(folder, FILES.format("data", "write") + own) == []


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "XDG_CACHE_HOME", "HOME"])
@pytest.mark.parametrize("own", ["data", "data/sub"])
def test_workspace_with_logins_or_code_is_refused(folder: Path, variable: str, own: str) -> None:
    assert problems(folder, FILES.format("data", "read"), **{variable: str(folder / own)})


def test_manifest_behind_a_link_in_the_workspace_is_refused(folder: Path) -> None:
    """A script that may write there replaces the link."""
    (folder / "data" / "settings").symlink_to(folder / "elsewhere")
    (folder / "elsewhere").mkdir()
    found = problems(folder, FILES.format(folder / "data", "write"), "data/settings/p.yaml")
    assert [problem.key for problem in found] == ["capabilities.files.workspace"]


def warnings(folder: Path, tool: ListedTool = ADDS, reload: str = "ask", **spec: Any) -> list[str]:
    path = folder / "portal.yaml"
    files = {"command": "/bin/server", "cwd": str(folder.parent / "away"), **spec}
    path.write_text(yaml.safe_dump({"upstreams": {"files": files}, "server": {"reload": reload}}))
    environ = {"HOME": str(folder.parent / "home")}
    found = [*writable_files(load_manifest(path, environ, stand_in), {"files": [tool]}, environ)]
    assert all(is_named is (spec.get("cwd", "") is not None) for _, is_named in found)
    return [text for text, _ in found]


@pytest.mark.parametrize("argument", [
    "{folder}", "{folder}/", "{folder}/data/..", "{folder}/portal.yaml", "{folder}/portal.env", "../portal",
    "up/portal", "{parent}/link", "--root={folder}", "-C{folder}", "-v{folder}:/data", "root={folder}",
    "/nowhere:{folder}", "/nowhere,{folder}", "type=bind,src={folder},dst=/x", "file://{folder}",
    "FILE://localhost{folder}", "file:{parent}/%70ortal",
    '{{"roots": ["file://localhost{parent}/%70ortal"]}}', '{{"roots": ["{folder}"]}}',
    "cd {folder} && exec server", "{parent}/home/.local/state",
    "{parent}/home/.local/state/mcp-code-portal/accepted",
])  # fmt: skip
def test_argument_that_names_a_place_of_the_portal_is_warned_of(folder: Path, argument: str) -> None:
    text = argument.format(folder=folder, parent=folder.parent)
    [warning] = warnings(folder, args=["-y", text])
    assert warning.startswith("portal.yaml:")
    assert text not in warning, "an argument may be a secret"


@pytest.mark.parametrize("argument", [
    "{folder}/data", "{parent}/away", ".", "-y", "@scope/server-filesystem", "https://example.com/",
    "file:///a%00", "stdio", "",
])  # fmt: skip
def test_argument_that_names_another_place_is_not(folder: Path, argument: str) -> None:
    assert warnings(folder, args=[argument.format(folder=folder, parent=folder.parent)]) == []


def test_home_as_a_tilde_is_a_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    assert warnings(folder, args=["~/portal"])


def test_program_of_a_command_is_one_of_the_files(folder: Path) -> None:
    (folder / "data" / "token.sh").write_text("echo secret")
    args = [str(folder / "data")]
    assert not warnings(folder, args=args)
    [warning] = warnings(folder, args=args, env={"K": "${command:sh data/token.sh}"})
    assert "data/token.sh" in warning


@pytest.mark.parametrize("spec", [{"roots": ["file://{}"]}, {"cwd": "{}"}, {"cwd": "."}, {"cwd": ".."}])
def test_root_and_working_directory_count_too(folder: Path, spec: Any) -> None:
    filled = yaml.safe_load(yaml.safe_dump(spec).replace("{}", str(folder)))
    assert len(warnings(folder, **filled)) == 1


@pytest.mark.parametrize(("tool", "count"), [(WRITES, 1), (ADDS, 0)])
def test_default_working_directory_is_noted_for_paths(folder: Path, tool: ListedTool, count: int) -> None:
    assert len(warnings(folder, tool, cwd=None)) == count


@pytest.mark.parametrize(("reload", "is_now"), [("watch", True), ("ask", False), ("signal", False)])
def test_warning_says_if_a_change_would_take_effect_at_once(folder: Path, reload: str, is_now: bool) -> None:
    [warning] = warnings(folder, reload=reload, args=[str(folder)])
    assert ("at once" in warning) is is_now
