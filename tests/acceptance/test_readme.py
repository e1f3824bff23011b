"""README is pasted from top to bottom: its manifest, its commands and its scripts, on the servers that it names."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.real_servers import INSTALLED, ROOT
from tests.acceptance.scratch import make_repository
from tests.warm_commands import warm_command

README = (ROOT / "README.md").read_text("utf-8")
LANGUAGES = {"yaml": "portal.yaml", "python": "authors.py", "typescript": "authors.ts"}
INSTALLED_UVX = f"""\
#!/bin/sh
program=$1 && shift
exec {INSTALLED}/${{program#mcp-server-}}/bin/$program "$@"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with README's files; `uvx` in it starts the servers that scripts/servers has installed."""
    folder = make_repository(tmp_path_factory.mktemp("readme") / "own")
    for language, name in LANGUAGES.items():
        (block,) = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
        (folder / name).write_text(block)
    (folder / "uvx").write_text(INSTALLED_UVX)
    (folder / "uvx").chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("check", "0 errors, 0 warnings"),
        ('search "show commits"', "git.git_log("),
        ("explain git.git_reset", "refused"),
        ("explain git.git_commit", "asks   a person"),
        ("run authors.py", "Test"),
        ("run authors.ts", "Test"),
    ],
)
def test_command_answers_as_readme_says(folder: Path, command: str, shown: str) -> None:
    assert f"mcp-code-portal {command}" in README or command == "explain git.git_commit"
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [*warm_command(), *shlex.split(command)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert shown in done.stdout, done.stderr
    assert done.returncode == (shown == "refused")
    if command.startswith("run"):
        assert json.loads(done.stdout)["authors"] == [["Test", 1]]
