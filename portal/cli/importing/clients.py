"""Reads and writes the files in which MCP clients keep their servers, on Linux and macOS.

Sources: modelcontextprotocol.io (Claude Desktop); code.claude.com/docs/en/mcp; cursor.com/docs/mcp;
code.visualstudio.com/docs/copilot/reference/mcp-configuration; docs.windsurf.com (Cascade, MCP);
google-gemini/gemini-cli docs/tools/mcp-server.md; openai/codex docs/config.md; zed.dev/docs/ai/mcp;
docs.cline.bot (Configuring MCP Servers); docs.roocode.com (Using MCP in Roo Code); opencode.ai/docs/mcp-servers and
opencode.ai/v2/docs/mcp-servers; goose documentation/docs/guides/config-files.md; docs.github.com (Copilot CLI, MCP).
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import json5
import tomlkit

from manifests.errors import ManifestError
from manifests.loader import read_yaml
from manifests.own_files import read_capped, utf8, write_whole
from portal.base.errors import PortalError

MAX_BYTES: Final = 16 * 1024 * 1024
"""Size of a client's file. Claude Code keeps histories in the same file as its servers."""

MAX_COMMENTED_BYTES: Final = 256 * 1024
"""Characters of JSON with comments, which is parsed at about 50 kB per second."""

Data = MutableMapping[str, Any]
"""The content of a file: JSON, or a tomlkit document, which keeps comments and order."""

_LINE: Final = re.compile(r"(?:<string>:|\bline )(?P<line>\d+)")
"""The line in error messages of both parsers."""


class ClientFileError(PortalError):
    """A client's file cannot be read, parsed or changed. `line` counts from 1."""

    def __init__(self, path: Path, message: str, line: int | None = None) -> None:
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {message}")


@dataclass(frozen=True)
class Client:
    """The common properties of all files of a client.

    `key` is the key of the object with the servers. `variables` matches the references that the client expands.
    A file that also holds other settings, with comments that would be lost, is only read: `is_read_only`.
    """

    name: str
    title: str
    key: str = "mcpServers"
    variables: re.Pattern[str] | None = None
    format: Literal["json", "toml", "yaml"] = "json"
    is_read_only: bool = False


_BRACES: Final = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^${}]*))?\}")
_DOLLAR: Final = re.compile(_BRACES.pattern + r"|\$(?P<bare>[A-Z][A-Z0-9_]+)(?!\w)")
_BRACED: Final = re.compile(r"\{(?P<prefix>env|file):(?P<inside>[^{}]*)\}")
_PREFIXED: Final = re.compile(r"\$\{(?:(?P<prefix>env|input|command|config|file):)?(?P<inside>[^${}]*)\}")

CLAUDE_DESKTOP: Final = Client("claude-desktop", "Claude Desktop")
CLAUDE_CODE: Final = Client("claude-code", "Claude Code", variables=_BRACES)
CURSOR: Final = Client("cursor", "Cursor", variables=_PREFIXED)
VSCODE: Final = Client("vscode", "VS Code", "servers", variables=_PREFIXED)
WINDSURF: Final = Client("windsurf", "Windsurf", variables=_PREFIXED)
GEMINI: Final = Client("gemini", "Gemini CLI", variables=_DOLLAR)
CODEX: Final = Client("codex", "Codex", "mcp_servers", format="toml")
ZED: Final = Client("zed", "Zed", "context_servers", is_read_only=True)
CLINE: Final = Client("cline", "Cline", variables=_PREFIXED)
ROO: Final = Client("roo", "Roo Code", variables=_PREFIXED)
OPENCODE: Final = Client("opencode", "opencode", "mcp", _BRACED, is_read_only=True)
GOOSE: Final = Client("goose", "Goose", "extensions", _BRACES, "yaml", is_read_only=True)
COPILOT: Final = Client("copilot", "Copilot CLI", variables=_BRACES)


@dataclass(frozen=True)
class ClientFile:
    """One file that a client reads. `project` is the folder that it applies to; None for the user's own file."""

    client: Client
    path: Path
    project: Path | None = None
    variant: str = ""

    @property
    def name(self) -> str:
        """The name on the command line: `cursor`, `cursor-project`, `vscode-insiders`."""
        return "-".join(filter(None, (self.client.name, self.variant, "project" if self.project else "")))

    def content(self) -> bytes | None:
        """Read the file; None if it does not exist. Raises ClientFileError, as `read_capped` does."""
        try:
            return read_capped(self.path, MAX_BYTES)[0]
        except FileNotFoundError:
            return None
        except ManifestError as error:
            raise ClientFileError(self.path, error.problems[0].message) from None

    def parsed(self, content: bytes) -> Data:
        """Parse the content. Raises ClientFileError: it is not valid in the client's format."""
        try:
            data: Any = _PARSERS[self.client.format](utf8(content, self.path.name))
        except ManifestError as error:
            problem = error.problems[0]
            raise ClientFileError(self.path, f"cannot be parsed: {problem.message}", problem.line) from None
        except (ValueError, RecursionError) as error:
            found = _LINE.search(str(error))
            place = int(found["line"]) if found else None
            raise ClientFileError(self.path, f"cannot be parsed: {error}", place) from None
        if not isinstance(data, MutableMapping):
            raise ClientFileError(self.path, "has no keys at its top", 1)
        return data

    def dumped(self, data: Data) -> bytes:
        text = (
            tomlkit.dumps(data)
            if self.client.format == "toml"
            else json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        )
        # A lone surrogate is written as the JSON escape from which it was read.
        return text.encode("utf-8", "backslashreplace")

    def put(self, content: bytes | None) -> None:
        """Replace the file's content; None removes the file. Its mode stays, and a link stays a link.

        Raises ClientFileError: it cannot be written.
        """
        target = Path(os.path.realpath(self.path))
        try:
            if content is None:
                return target.unlink(missing_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, content, keeps_mode=True)
        except OSError as error:
            raise ClientFileError(self.path, f"cannot be written: {error.strerror}") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else {}
    except json.JSONDecodeError:
        if len(text) > MAX_COMMENTED_BYTES:
            raise
    return json5.loads(text)  # accepts comments and trailing commas


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "json": _json,
    "toml": tomlkit.parse,
    "yaml": lambda text: read_yaml(text).data or {},
}


def client_files(
    platform: str, environ: Mapping[str, str], home: Path, project: Path | None
) -> list[ClientFile]:
    """Every file that may exist, including those of `project`. `platform` is as in `sys.platform`."""
    found = [*_own(platform, environ, home), *(() if project is None else _of_project(project))]
    # If the project is the home folder, a project file may be the user's own.
    by_path = {each.path: each for each in reversed(found)}
    return [each for each in found if by_path[each.path] is each]


def _own(platform: str, environ: Mapping[str, str], home: Path) -> Iterator[ClientFile]:
    def folder(variable: str, otherwise: Path) -> Path:
        chosen = Path(environ.get(variable, ""))
        return chosen if chosen.is_absolute() else otherwise

    dotted = settings = folder("XDG_CONFIG_HOME", home / ".config")
    if platform == "darwin":
        settings = home / "Library/Application Support"
    of_extensions = settings / "Code/User/globalStorage"
    yield ClientFile(CLAUDE_DESKTOP, settings / "Claude/claude_desktop_config.json")
    yield ClientFile(CLAUDE_CODE, folder("CLAUDE_CONFIG_DIR", home) / ".claude.json")
    yield ClientFile(CURSOR, home / ".cursor/mcp.json")
    yield ClientFile(VSCODE, settings / "Code/User/mcp.json")
    yield ClientFile(VSCODE, settings / "Code - Insiders/User/mcp.json", variant="insiders")
    yield ClientFile(WINDSURF, home / ".codeium/windsurf/mcp_config.json")
    yield ClientFile(WINDSURF, home / ".codeium/mcp_config.json", variant="plugin")
    yield ClientFile(GEMINI, home / ".gemini/settings.json")
    yield ClientFile(CODEX, folder("CODEX_HOME", home / ".codex") / "config.toml")
    yield ClientFile(ZED, dotted / "zed/settings.json")
    yield ClientFile(CLINE, of_extensions / "saoudrizwan.claude-dev/settings/cline_mcp_settings.json")
    yield ClientFile(CLINE, home / ".cline/data/settings/cline_mcp_settings.json", variant="cli")
    yield ClientFile(ROO, of_extensions / "rooveterinaryinc.roo-cline/settings/mcp_settings.json")
    yield ClientFile(OPENCODE, dotted / "opencode/opencode.json")
    yield ClientFile(OPENCODE, dotted / "opencode/opencode.jsonc", variant="jsonc")
    yield ClientFile(GOOSE, dotted / "goose/config.yaml")
    yield ClientFile(COPILOT, folder("COPILOT_HOME", home / ".copilot") / "mcp-config.json")


def _of_project(project: Path) -> Iterator[ClientFile]:
    yield ClientFile(CLAUDE_CODE, project / ".mcp.json", project)
    yield ClientFile(CURSOR, project / ".cursor/mcp.json", project)
    yield ClientFile(VSCODE, project / ".vscode/mcp.json", project)
    yield ClientFile(GEMINI, project / ".gemini/settings.json", project)
    yield ClientFile(CODEX, project / ".codex/config.toml", project)
    yield ClientFile(ZED, project / ".zed/settings.json", project)
    yield ClientFile(ROO, project / ".roo/mcp.json", project)
    yield ClientFile(OPENCODE, project / "opencode.json", project)
    yield ClientFile(OPENCODE, project / "opencode.jsonc", project, "jsonc")
    yield ClientFile(COPILOT, project / ".github/mcp.json", project)
