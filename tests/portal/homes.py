"""Somebody with a home in which clients keep their servers, at the shell in the folder of a project."""

import json
import os
from pathlib import Path

from manifests.json_value import Json
from manifests.references import NETWORK_VARIABLE
from portal.cli.importing.clients import client_files
from portal.cli.importing.merging import Merging, Target
from portal.cli.importing.servers import servers_of
from tests.portal.commands import Done, PortalCommand


class Person:
    def __init__(self, home: Path, portal: PortalCommand) -> None:
        self.home = home
        self.project = home / "work"
        self.project.mkdir()
        self._files = {file.name: file for file in client_files("linux", {}, home, self.project)}
        self.manifest = self.project / "portal.yaml"
        self.env = self.project / "portal.env"
        self._portal = portal

    def __call__(self, *arguments: str, **env: str) -> Done:
        folders = ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "COPILOT_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
        moved = dict.fromkeys((*folders, *filter(NETWORK_VARIABLE.fullmatch, os.environ)), "")
        return self._portal("import", *arguments, cwd=self.project, env={**moved, **env})

    def path(self, client: str) -> Path:
        return self._files[client].path

    def write(self, client: str, content: str | bytes) -> Path:
        path = self.path(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def servers(self, client: str, **servers: Json) -> Path:
        key = self._files[client].client.key
        return self.write(client, json.dumps({key: servers}, indent=2))  # JSON is YAML, too

    def merged(self, *clients: str, **env: str) -> Merging:
        """The servers that an import of these files, or of the user's own, takes over."""
        merging = Merging(Target(self.manifest), env)
        files = self._files.values()
        chosen = [file for file in files if (file.name in clients if clients else not file.project)]
        there = [(file, content) for file in chosen if (content := file.content()) is not None]
        merging.add([each for file, text in there for each in servers_of(file, file.parsed(text))])
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
