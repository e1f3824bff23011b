"""A workspace in which scripts would have what is the portal's own is refused when the manifest is loaded."""

from pathlib import Path

import pytest

from manifests.errors import ManifestError, Problem
from manifests.loader import load_manifest

FILES = "capabilities: {{files: {{workspace: {}, mode: {}}}}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a manifest, with a folder for scripts in it."""
    folder = tmp_path / "portal"
    (folder / "data" / "sub").mkdir(parents=True)
    return folder


def problems(folder: Path, text: str, name: str = "portal.yaml", **environ: str) -> list[Problem]:
    (folder / name).write_text(text)
    try:
        load_manifest(folder / name, {"HOME": str(folder.parent / "home"), **environ})
    except ManifestError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("workspace", [".", "..", "data/..", "/", "link"])
def test_workspace_with_the_manifest_in_it_is_refused_at_its_line(
    folder: Path, mode: str, workspace: str
) -> None:
    (folder / "link").symlink_to(folder)
    [problem] = problems(folder, FILES.format(workspace, mode))
    assert (problem.key, problem.line) == ("capabilities.files.workspace", 1)
    for name in ("portal.yaml", "portal.env", "portal.lock"):
        assert name in problem.message
    assert str(folder) not in str(problem)


@pytest.mark.parametrize(
    "more",
    [
        "audit: {to: data/a.jsonl}",
        "audit: {to: inside/a.jsonl}",
        "server: {observed_folder: data/sub}",
        "server: {component: data/x.wasm}",
        "runs: {store: data/runs.db}",
    ],
)
def test_workspace_with_something_else_of_the_portal_in_it_is_refused(folder: Path, more: str) -> None:
    (folder / "inside").symlink_to(folder / "data" / "sub")
    [problem] = problems(folder, FILES.format("data", "write") + more)
    assert problem.key == "capabilities.files.workspace"


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "XDG_CACHE_HOME", "HOME"])
@pytest.mark.parametrize("own", ["data", "data/sub"])
def test_workspace_with_logins_or_compiled_code_in_it_is_refused(
    folder: Path, variable: str, own: str
) -> None:
    assert problems(folder, FILES.format("data", "read"), **{variable: str(folder / own)})


def test_manifest_behind_a_link_in_the_workspace_is_refused(folder: Path) -> None:
    """Who may write there puts something else in the place of the link."""
    (folder / "data" / "settings").symlink_to(folder / "elsewhere")
    (folder / "elsewhere").mkdir()
    found = problems(
        folder, FILES.format("..", "write").replace("..", str(folder / "data")), "data/settings/p.yaml"
    )
    assert [problem.key for problem in found] == ["capabilities.files.workspace"]
