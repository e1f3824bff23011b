"""Where the clients' documentation says that their files are."""

from pathlib import Path, PurePosixPath

import pytest

from portal.client_files.places import places
from tests.portal.client_files.homes import FILES

HOME, PROJECT = Path("/home/me"), Path("/home/me/work")


def paths(platform: str, **environ: str) -> dict[str, str]:
    return {each.name: each.path.as_posix() for each in places(platform, environ, HOME, PROJECT)}


def test_linux() -> None:
    assert paths("linux") == {name: f"/home/me/{path}" for name, path in FILES.items()}


def test_macos() -> None:
    found = paths("darwin")
    settings = "/home/me/Library/Application Support"
    assert found["claude-desktop"] == f"{settings}/Claude/claude_desktop_config.json"
    assert found["vscode"] == f"{settings}/Code/User/mcp.json"
    assert found["cursor"] == "/home/me/.cursor/mcp.json"


def test_windows() -> None:
    found = paths("win32")
    assert found["claude-desktop"] == "/home/me/AppData/Roaming/Claude/claude_desktop_config.json"
    assert found["vscode"] == "/home/me/AppData/Roaming/Code/User/mcp.json"
    assert paths("win32", APPDATA="/other")["claude-desktop"] == "/other/Claude/claude_desktop_config.json"


@pytest.mark.parametrize(
    ("variable", "client", "path"),
    [
        ("CODEX_HOME", "codex", "config.toml"),
        ("CLAUDE_CONFIG_DIR", "claude-code", ".claude.json"),
        ("XDG_CONFIG_HOME", "vscode", "Code/User/mcp.json"),
    ],
)
def test_variables_move_them(variable: str, client: str, path: str) -> None:
    assert paths("linux", **{variable: "/elsewhere"})[client] == str(PurePosixPath("/elsewhere") / path)
    assert paths("linux", **{variable: "not/absolute"})[client] == paths("linux")[client]


def test_in_the_home_itself_each_file_is_read_once() -> None:
    found = [each for each in places("linux", {}, HOME, HOME) if each.path.is_relative_to(HOME)]
    assert len({each.path for each in found}) == len(found)
    assert [each.name for each in found if each.path == HOME / ".cursor/mcp.json"] == ["cursor"]


def test_the_documentation_has_every_file() -> None:
    text = (Path(__file__).parents[3] / "docs/import.md").read_text("utf-8")
    table = text.partition("| client |")[2].partition("\n\n")[0]
    for name, path in FILES.items():
        assert f"`{name.removesuffix('-project')}`" in table, name
        assert Path(path).name in table and (
            not name.endswith("-project") or f"`{path.removeprefix('work/')}`" in table
        )
