"""Somebody who takes over what clients are configured with."""

import json
from pathlib import Path

from manifests.json_value import Json
from tests.portal.client_files.homes import Home
from tests.portal.commands import Done, PortalCommand


class Person:
    """Somebody with a home, at the shell in the folder of a project."""

    def __init__(self, home: Home, portal: PortalCommand) -> None:
        self.home = home
        self._portal = portal

    def __call__(self, *arguments: str, **env: str) -> Done:
        moved = dict.fromkeys(("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), "")
        env = {"HOME": str(self.home.folder), **moved, **env}
        return self._portal("import", *arguments, cwd=self.home.project, env=env)

    def install(self, client: str, *more: str) -> None:
        done = self("--install", client, "--save-secrets", *more)
        assert done.returncode == 0, done.stderr

    def facts(self, *arguments: str) -> dict[str, Json]:
        done = self("--json", *arguments)
        return dict(json.loads(done.stdout))

    @property
    def manifest(self) -> Path:
        return self.home.project / "portal.yaml"

    @property
    def env(self) -> Path:
        return self.home.project / "portal.env"

    @property
    def backups(self) -> Path:
        return self.home.folder / ".local/state/mcp-code-portal/clients"
