"""`check` says every problem at once, with how to mend it, and how bad they are in its exit status."""

import json
import os
import re
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.references import NETWORK_VARIABLE
from tests.portal.commands import PortalCommand
from tests.portal.peers import raw, raw_tools, write_manifest

BROKEN = """\
upstreams:
  a: {comand: x}
  b: {command: x, call_seconds: -1}
capabilities:
  tools: {allow: [{tool: x, where: {p: {prefix: ./x}}}], deny: x}
  limits: {tool_calls: many}
profiles: {wide: {tool: {}}}
"""


@pytest.mark.parametrize(
    ("entry", "tools", "status", "strict"),
    [
        (raw(tools=raw_tools("echo")), {}, 0, 0),
        (raw(tools=raw_tools("echo")), {"deny": ["nothing"]}, 0, 3),
        (raw(exits_with=3), {}, 1, 1),
    ],
)
def test_exit_status_says_how_bad_it_is(
    portal: PortalCommand, tmp_path: Path, entry: Json, tools: Json, status: int, strict: int
) -> None:
    write_manifest(tmp_path, {"up": entry}, capabilities={"tools": tools})
    done = portal("check", "--json", cwd=tmp_path)
    findings = json.loads(done.stdout)
    assert (done.returncode, bool(findings["errors"])) == (status, status == 1)
    assert any("'nothing' matches no tool" in text for text in findings["warnings"]) is bool(tools)
    assert portal("check", "--strict", cwd=tmp_path).returncode == strict


def test_manifest_that_cannot_be_used_is_told_whole_with_lines_and_what_to_write(
    portal: PortalCommand, tmp_path: Path
) -> None:
    (tmp_path / "portal.yaml").write_text(BROKEN)
    done = portal("check", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.findall(r"portal\.yaml:(\d+):\d+: ", done.stderr) == ["2", "3", "5", "5", "6", "7"]
    assert "Did you mean tools" in done.stderr


def test_check_of_one_upstream_tells_its_tools_and_the_end_of_its_stderr(
    portal: PortalCommand, tmp_path: Path
) -> None:
    loud = ["-c", "import sys; print('one\\ntwo\\x1b[2J', file=sys.stderr); sys.exit(3)"]
    wipe = {"name": "wipe", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": True}}
    upstreams = {"up": raw(tools=[*raw_tools("echo"), wipe]), "loud": {"command": "python3", "args": loud}}
    write_manifest(tmp_path, upstreams)
    done = portal("check", "loud", cwd=tmp_path)
    assert done.returncode == 1
    assert "\n    | one\n    | two [2J\n" in done.stdout
    told = portal("check", cwd=tmp_path).stdout
    assert (
        "| one" not in told
        and "kept back, because declared destructive: up.wipe. " in told
        and "capabilities.tools.deny: [up.echo]" in told
    )
    done = portal("check", "up", cwd=tmp_path)
    assert done.returncode == 0
    echo, wipe = (
        line.split() for line in done.stdout.splitlines() if line.startswith(("up.echo ", "up.wipe "))
    )
    assert echo == ["up.echo", "nothing", "yes"]
    assert wipe[:3] == ["up.wipe", "destroys", "no:"] and wipe[-2:] == ["names", "it"]
    assert portal("check", "upp", cwd=tmp_path).returncode == 2


def test_defaults_reach_each_child_and_what_the_shell_has_beside_them_is_named(
    portal: PortalCommand, tmp_path: Path
) -> None:
    show = "import os, sys; sys.exit(' '.join(os.environ.get(n, '-') for n in ('SSL_CERT_FILE', 'A', 'B', 'NO_PROXY')))"
    child = {"command": "python3", "args": ["-c", show], "env": {"A": "own"}}
    defaults = {"env": {"SSL_CERT_FILE": "/ca.pem", "A": "default", "B": ""}}
    write_manifest(tmp_path, {"up": child}, defaults=defaults)
    shell = {**dict.fromkeys(filter(NETWORK_VARIABLE.fullmatch, os.environ), ""), "NO_PROXY": "corp"}
    done = portal("check", "up", cwd=tmp_path, env={**shell, "SSL_CERT_FILE": "/other"})
    assert "| /ca.pem own - -\n" in done.stdout
    assert "your shell has NO_PROXY, the server up does not get it" in done.stdout


@pytest.mark.parametrize("command", ["npx -y x", "npx @scope/x"])
def test_command_with_its_arguments_in_it_is_told_where_they_go(
    portal: PortalCommand, tmp_path: Path, command: str
) -> None:
    write_manifest(tmp_path, {"up": {"command": command}})
    assert "put the arguments into args: {command: npx, args: [" in portal("check", "up", cwd=tmp_path).stdout
