"""Where MCP clients keep their configuration, as their documentation says, on Linux, macOS and Windows.

Sources: modelcontextprotocol.io (Claude Desktop); code.claude.com/docs/en/mcp; cursor.com/docs/mcp;
code.visualstudio.com/docs/copilot/reference/mcp-configuration; docs.windsurf.com (Cascade, MCP);
google-gemini/gemini-cli docs/tools/mcp-server.md; openai/codex docs/config.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

Style: TypeAlias = Literal["none", "braces", "dollar", "prefixed"]
"""What of a text a client fills in: nothing; `${NAME}`; `$NAME` too; `${env:NAME}`, `${input:id}` and the like."""


@dataclass(frozen=True)
class Client:
    """What is the same for all files of a client. `key` is that of the object with the servers."""

    name: str
    title: str
    key: str = "mcpServers"
    style: Style = "none"
    is_toml: bool = False


@dataclass(frozen=True)
class Place:
    """One file that a client reads; `project` is the folder it speaks for, None for the user's own file.

    `refusals` are the files in which somebody may have refused servers of it.
    """

    client: Client
    path: Path
    project: Path | None = None
    variant: str = ""
    refusals: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """What the command line calls it: `cursor`, `cursor-project`, `vscode-insiders`."""
        parts = (self.client.name, self.variant, "project" if self.project else "")
        return "-".join(filter(None, parts))


CLAUDE_DESKTOP: Final = Client("claude-desktop", "Claude Desktop")
CLAUDE_CODE: Final = Client("claude-code", "Claude Code", style="braces")
CURSOR: Final = Client("cursor", "Cursor", style="prefixed")
VSCODE: Final = Client("vscode", "VS Code", key="servers", style="prefixed")
WINDSURF: Final = Client("windsurf", "Windsurf", style="prefixed")
GEMINI: Final = Client("gemini", "Gemini CLI", style="dollar")
CODEX: Final = Client("codex", "Codex", key="mcp_servers", is_toml=True)

LOOKED_INTO: Final = frozenset(
    (
        "mcpServers",
        "servers",
        "projects",
        "mcp",
        "disabledMcpServers",
        "disabledMcpjsonServers",
        "allowMCPServers",
        "excludeMCPServers",
    )
)
"""The keys of JSON files under which clients say anything about servers."""

CLIENTS: Final = (CLAUDE_DESKTOP, CLAUDE_CODE, CURSOR, VSCODE, WINDSURF, GEMINI, CODEX)


def places(platform: str, environ: Mapping[str, str], home: Path, project: Path) -> Iterator[Place]:
    """Every file that may be there, in the order in which their servers get names; `platform` as in `sys.platform`.

    In the home itself a project's file may be the user's own, which is told once.
    """
    seen: set[Path] = set()
    for place in _places(platform, environ, home, project):
        if place.path not in seen:
            yield place
        seen.add(place.path)


def _places(platform: str, environ: Mapping[str, str], home: Path, project: Path) -> Iterator[Place]:
    settings = _settings_folder(platform, environ, home)
    yield Place(CLAUDE_DESKTOP, settings / "Claude/claude_desktop_config.json")
    own = _folder(environ, "CLAUDE_CONFIG_DIR", home) / ".claude.json"
    yield Place(CLAUDE_CODE, own)
    refusals = (
        own,
        _folder(environ, "CLAUDE_CONFIG_DIR", home / ".claude") / "settings.json",
        project / ".claude/settings.json",
        project / ".claude/settings.local.json",
    )
    yield Place(CLAUDE_CODE, project / ".mcp.json", project, refusals=refusals)
    yield Place(CURSOR, home / ".cursor/mcp.json")
    yield Place(CURSOR, project / ".cursor/mcp.json", project)
    yield Place(VSCODE, settings / "Code/User/mcp.json")
    yield Place(VSCODE, settings / "Code - Insiders/User/mcp.json", variant="insiders")
    yield Place(VSCODE, project / ".vscode/mcp.json", project)
    yield Place(WINDSURF, home / ".codeium/windsurf/mcp_config.json")
    yield Place(WINDSURF, home / ".codeium/mcp_config.json", variant="plugin")
    yield Place(GEMINI, home / ".gemini/settings.json")
    yield Place(GEMINI, project / ".gemini/settings.json", project)
    yield Place(CODEX, _folder(environ, "CODEX_HOME", home / ".codex") / "config.toml")
    yield Place(CODEX, project / ".codex/config.toml", project)


def _settings_folder(platform: str, environ: Mapping[str, str], home: Path) -> Path:
    """Where programs made with Electron keep what is the user's."""
    if platform == "darwin":
        return home / "Library/Application Support"
    if platform == "win32":
        return _folder(environ, "APPDATA", home / "AppData/Roaming")
    return _folder(environ, "XDG_CONFIG_HOME", home / ".config")


def _folder(environ: Mapping[str, str], variable: str, otherwise: Path) -> Path:
    chosen = Path(environ.get(variable, ""))
    return chosen if chosen.is_absolute() else otherwise
