"""Somebody with a home in which clients keep their servers, at the shell in the folder of a project."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from manifests.json_value import Json
from manifests.references import NETWORK_VARIABLE
from portal.cli.importing.clients import client_files
from portal.cli.importing.merging import Merging, Target
from portal.cli.importing.servers import servers_of
from tests.portal.commands import Done, PortalCommand

FILES: Mapping[str, str] = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "vscode-insiders": ".config/Code - Insiders/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "windsurf-plugin": ".codeium/mcp_config.json",
    "gemini": ".gemini/settings.json",
    "codex": ".codex/config.toml",
    "zed": ".config/zed/settings.json",
    "cline": ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    "cline-cli": ".cline/data/settings/cline_mcp_settings.json",
    "roo": ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
    "opencode": ".config/opencode/opencode.json",
    "opencode-jsonc": ".config/opencode/opencode.jsonc",
    "goose": ".config/goose/config.yaml",
    "copilot": ".copilot/mcp-config.json",
    "claude-code-project": "work/.mcp.json",
    "cursor-project": "work/.cursor/mcp.json",
    "vscode-project": "work/.vscode/mcp.json",
    "gemini-project": "work/.gemini/settings.json",
    "codex-project": "work/.codex/config.toml",
    "zed-project": "work/.zed/settings.json",
    "roo-project": "work/.roo/mcp.json",
    "opencode-project": "work/opencode.json",
    "opencode-jsonc-project": "work/opencode.jsonc",
    "copilot-project": "work/.github/mcp.json",
}
"""The path of each client's file on Linux, from the home; the project is `work`."""

KEYS: Mapping[str, str] = {
    "vscode": "servers",
    "zed": "context_servers",
    "opencode": "mcp",
    "goose": "extensions",
}
"""The key of the servers, where it is not mcpServers. JSON is YAML too."""


class Person:
    def __init__(self, home: Path, portal: PortalCommand) -> None:
        self.home = home
        self.project = home / "work"
        self.project.mkdir()
        self.manifest = self.project / "portal.yaml"
        self.env = self.project / "portal.env"
        self._portal = portal

    def __call__(self, *arguments: str, **env: str) -> Done:
        folders = ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "COPILOT_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
        moved = dict.fromkeys((*folders, *filter(NETWORK_VARIABLE.fullmatch, os.environ)), "")
        return self._portal(
            "import", *arguments, cwd=self.project, env={"HOME": str(self.home), **moved, **env}
        )

    def path(self, client: str) -> Path:
        return self.home / FILES[client]

    def write(self, client: str, content: str | bytes) -> Path:
        path = self.path(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def servers(self, client: str, **servers: Json) -> Path:
        key = KEYS.get(client.partition("-")[0], "mcpServers")
        return self.write(client, json.dumps({key: servers}, indent=2))

    def merged(self, *clients: str, **env: str) -> Merging:
        """The servers that an import of these files, or of the user's own, takes over."""
        merging = Merging(Target(self.manifest), env)
        files = client_files("linux", {}, self.home, self.project if clients else None)
        chosen = [file for file in files if not clients or file.name in clients]
        there = [(file, content) for file in chosen if (content := file.content()) is not None]
        merging.add([each for file, text in there for each in servers_of(file, file.parsed(text), self.home)])
        return merging

    def spec(self, client: str, entry: Json) -> dict[str, Json]:
        """The manifest's section for one entry of a client's file."""
        self.servers(client, it=entry)
        merged = self.merged(client)
        assert merged.imported, merged.skipped
        return dict(merged.imported[0].spec or {})

    def reason(self, client: str, entry: Json) -> str:
        """Why an entry is left out."""
        self.servers(client, it=entry)
        [out] = self.merged(client).skipped
        return out.reason
