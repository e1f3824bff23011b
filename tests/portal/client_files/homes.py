"""A home with configuration files of clients, and what is read from it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from manifests.json_value import Json
from portal.client_files.contents import Contents, read_contents
from portal.client_files.existing import Existing
from portal.client_files.json_text import plain, read_json
from portal.client_files.merging import Merged, Taken, merged
from portal.client_files.places import places

FILES: Mapping[str, str] = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "claude-code-project": "work/.mcp.json",
    "cursor": ".cursor/mcp.json",
    "cursor-project": "work/.cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "vscode-insiders": ".config/Code - Insiders/User/mcp.json",
    "vscode-project": "work/.vscode/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "windsurf-plugin": ".codeium/mcp_config.json",
    "gemini": ".gemini/settings.json",
    "gemini-project": "work/.gemini/settings.json",
    "codex": ".codex/config.toml",
    "codex-project": "work/.codex/config.toml",
}
"""Where each client's file is on Linux, seen from the home; the project is `work`."""

TIME: Json = {"command": "uvx", "args": ["mcp-server-time"]}
HUB: Json = {"command": "hub", "args": [], "env": {"HUB_TOKEN": "hunter2"}}

CODEX = """\
model = "x"  # mine

# the time
[mcp_servers.time]
command = "uvx"
args = ["mcp-server-time"]

[mcp_servers.hub]
command = "hub"
env_vars = ["HUB_TOKEN"]

[tui]
theme = "dark"
"""


@dataclass(frozen=True)
class Home:
    """`environ` is what the variables of the files may be filled in from."""

    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def project(self) -> Path:
        path = self.folder / "work"
        path.mkdir(exist_ok=True)
        return path

    def path(self, client: str) -> Path:
        return self.folder / FILES[client]

    def write(self, client: str, content: str | bytes) -> Path:
        path = self.path(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def servers(self, client: str, **servers: Json) -> Path:
        key = "servers" if client.startswith("vscode") else "mcpServers"
        return self.write(client, json.dumps({key: servers}, indent=2))

    def contents(self) -> dict[str, Contents]:
        found = places("linux", self.environ, self.folder, self.project)
        read = [read_contents(place, self.folder, self.project, self.environ) for place in found]
        return {each.place.name: each for each in read if each.is_there}

    def merged(self, existing: str = "", kept: Mapping[str, str] | None = None) -> Merged:
        return merged(self.contents().values(), Existing.of(existing), self.environ, kept or {})

    def taken(self) -> dict[str, Taken]:
        return {each.name: each for each in self.merged().taken}

    def spec(self, client: str, entry: Json) -> dict[str, Json]:
        """What a manifest gets of an entry, alone in the client's file."""
        self.servers(client, it=entry)
        merging = self.merged()
        assert not merging.left_out, merging.left_out
        return merging.taken[0].server.spec()

    def reason(self, client: str, entry: Json) -> str:
        """Why an entry is left out."""
        self.servers(client, it=entry)
        (out,) = self.merged().left_out
        return out.reason


def data_of(path: Path) -> dict[str, Json]:
    """What a client's file says now."""
    node = read_json(path.read_text())
    assert node is not None
    return dict(plain(node))


def servers_of(path: Path) -> dict[str, Json]:
    found = data_of(path)
    return dict(found.get("mcpServers", found.get("servers")))
