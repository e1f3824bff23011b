"""`explain` says what the broker will do, by which rule; `check` says every problem at once and how bad they are."""

import json
import os
import re
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.references import NETWORK_VARIABLE
from tests.portal.commands import PortalCommand
from tests.portal.peers import raw, raw_tools, write_manifest

READ, WRITE, WIPE, DROP = raw_tools("read-file", "write", "wipe", "drop")
TOOLS: Json = [
    {**READ, "annotations": {"readOnlyHint": True}},
    {**WRITE, "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}},
    {**WIPE, "annotations": {"destructiveHint": True}},
    DROP,
]
MANIFEST = """\
upstreams:
  files: {upstream}
  my web: {down}
capabilities:
  tools:
    allow:
      - "*"
      - {{tool: files.write, where: {{path: {{prefix: reports/}}}}}}
    deny: [drop]
    budgets: [{{tool: "files.*", calls: 5}}]
    ask: [write]
  flows: [{{from: files, not_to: my web}}]
fallback: {{files.read_file: [my_web.read]}}
profiles:
  reader: {{tools: {{allow: [{{annotation: readonly}}]}}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    upstream, down = json.dumps({**raw(tools=TOOLS), "start": "lazy"}), json.dumps(raw(exits_with=3))
    (folder / "portal.yaml").write_text(MANIFEST.format(upstream=upstream, down=down))
    return folder


def explain(portal: PortalCommand, folder: Path, *arguments: str) -> tuple[int, dict[str, Json]]:
    done = portal("explain", *arguments, "--json", cwd=folder)
    [explanation] = json.loads(done.stdout)
    return done.returncode, explanation


@pytest.mark.parametrize("name", ["read-file", "read_file", "files.read-file"])
def test_each_name_of_a_tool_is_understood(portal: PortalCommand, folder: Path, name: str) -> None:
    status, explanation = explain(portal, folder, name)
    assert (status, explanation["tool"], explanation["function"]) == (0, "files.read-file", "files.read_file")
    assert (explanation["verdict"], explanation["where"]) == ("allow", "portal.yaml:7:9")
    assert explanation["fallbacks"] == ["my_web.read"]


@pytest.mark.parametrize(
    ("name", "rule", "where", "grant", "is_shown"),
    [
        ("files.wipe", "declares itself destructive", "portal.yaml:6:5", 'add "files.wipe" to', True),
        ("files.drop", "capabilities.tools.deny: drop", "portal.yaml:9:12", 'Remove "drop"', False),
    ],
)
def test_refusal_names_rule_line_and_what_to_write(
    portal: PortalCommand, folder: Path, name: str, rule: str, where: str, grant: str, is_shown: bool
) -> None:
    status, explanation = explain(portal, folder, name)
    assert (status, explanation["verdict"]) == (1, "deny")
    assert rule in explanation["rule"] and grant in explanation["grant"]
    assert (explanation["where"], explanation["is_shown"]) == (where, is_shown)


@pytest.mark.parametrize(("network", "status"), [("", 1), (", network: {allow: [a.example]}", 0)])
def test_fetching_is_explained_by_what_grants_hosts(
    portal: PortalCommand, tmp_path: Path, network: str, status: int
) -> None:
    grants = f"{{flows: [{{from: up, not_to: network}}]{network}}}"
    (tmp_path / "portal.yaml").write_text(f"upstreams: {{up: {{command: x}}}}\ncapabilities: {grants}\n")
    exits_with, explanation = explain(portal, tmp_path, "portal.fetch")
    assert (exits_with, explanation["verdict"] == "deny") == (status, bool(status))
    assert "network" in explanation["rule"] and len(explanation["flows"]) == 1
    assert ("capabilities.network.allow" in explanation["grant"]) is bool(status)
    done = portal("explain", "portal.fetch", "--arguments", '{"url": "https://b.example"}', cwd=tmp_path)
    assert (done.returncode, "capabilities.network" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [('{"path": "reports/x"}', 0), ('{"path": "reports/../x"}', 1), ("{}", 1), ('{"path": 5}', 1)],
)
def test_arguments_are_tried(portal: PortalCommand, folder: Path, arguments: str, status: int) -> None:
    assert explain(portal, folder, "files.write", "--arguments", arguments)[0] == status


def test_tool_without_a_budget_is_refused(portal: PortalCommand, tmp_path: Path) -> None:
    tools = {"budgets": [{"tool": "up.echo", "calls": 0}]}
    write_manifest(tmp_path, {"up": raw(tools=raw_tools("echo"))}, capabilities={"tools": tools})
    assert explain(portal, tmp_path, "up.echo")[0] == 1


def test_conditions_budgets_and_flows_are_told(portal: PortalCommand, folder: Path) -> None:
    _, explanation = explain(portal, folder, "files.write")
    [[condition]] = explanation["conditions"]
    assert condition == {"where": "portal.yaml:8:9", "demand": "path must begin with 'reports/'"}
    assert [(each["calls"], each["where"]) for each in explanation["budgets"]] == [(5, "portal.yaml:10:15")]
    assert [each["where"] for each in explanation["flows"]] == ["portal.yaml:12:11"]
    assert (explanation["asks"], explanation["verdict"]) == ("capabilities.tools.ask: write", "allow")
    assert explanation["fallbacks"] == []
    text = portal("explain", "files.write", cwd=folder).stdout
    assert "path must begin with 'reports/' (portal.yaml:8:9)" in text
    assert "capabilities.tools.ask: write (portal.yaml:11:11)" in text
    assert "my_web.read, if its upstream is down" in portal("explain", "read_file", cwd=folder).stdout


def test_profile_is_asked(portal: PortalCommand, folder: Path) -> None:
    assert explain(portal, folder, "files.read_file", "--profile", "reader")[0] == 0
    status, explanation = explain(portal, folder, "files.write", "--profile", "reader")
    assert (status, explanation["where"]) == (1, "portal.yaml:15:20")
    done = portal("explain", "files.write", "--profile", "raeder", cwd=folder)
    assert done.returncode == 2 and "reader" in done.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("files.raed-file", "files.read_file"),
        ("wirte", "files.write"),
        ("files.nothing", "mcp-code-portal search"),
        ("my web.anything", "upstream 'my web' is"),
    ],
)
def test_name_of_nothing_is_told_a_way_on(portal: PortalCommand, folder: Path, name: str, told: str) -> None:
    done = portal("explain", name, cwd=folder)
    assert done.returncode == 2 and told in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("entry", "tools", "strict", "told"),
    [
        (raw(tools=[]), {}, 0, ("notes", "'up' lists no tools")),
        (raw(tools=raw_tools("echo")), {"deny": ["nothing"]}, 3, ("warnings", "'nothing' matches no tool")),
        (raw(exits_with=3), {}, 1, ("errors", "'up' is down")),
    ],
)
def test_exit_status_says_how_bad_it_is(
    portal: PortalCommand, tmp_path: Path, entry: Json, tools: Json, strict: int, told: tuple[str, str]
) -> None:
    write_manifest(tmp_path, {"up": entry}, capabilities={"tools": tools})
    done = portal("check", "--strict", "--json", cwd=tmp_path)
    kind, text = told
    assert done.returncode == strict and any(text in each for each in json.loads(done.stdout)[kind])


def test_literal_credential_anywhere_in_the_manifest_is_warned_of(
    portal: PortalCommand, tmp_path: Path
) -> None:
    env = {"KEY": f"ghp_{'x' * 36}", "OTHER": "${NAME:-value}"}
    up = {**raw(tools=raw_tools("echo")), "env": env}
    sections = {"defaults": {"env": env}, "capabilities": {"environment": env}}
    write_manifest(tmp_path, {"up": up}, server={"token": env["KEY"]}, **sections)
    done = portal("check", "up", "--json", cwd=tmp_path)
    assert done.returncode == 0, "without --strict"
    told = json.loads(done.stdout)["warnings"]
    assert {*re.findall(r" (\S+) contains a literal credential", "\n".join(told))} == {
        "upstreams.up.env.KEY",
        "defaults.env.KEY",
        "capabilities.environment.KEY",
        "server.token",
    }


def test_check_of_one_upstream_tells_its_tools_and_stderr(portal: PortalCommand, tmp_path: Path) -> None:
    loud = ["-c", "import sys; print('one\\ntwo\\x1b[2J', file=sys.stderr); sys.exit(3)"]
    [drop, echo, wipe] = raw_tools("drop", "echo", "wipe")
    drop = {**drop, "annotations": {"readOnlyHint": True}}
    up = raw(tools=[drop, echo, {**wipe, "annotations": {"destructiveHint": True}}])
    asks: Json = {"tools": {"ask": ["up.drop"]}}
    write_manifest(tmp_path, {"up": up, "loud": {"command": "python3", "args": loud}}, capabilities=asks)
    done = portal("check", "loud", cwd=tmp_path)
    assert done.returncode == 1 and "\n    | one\n    | two [2J\n" in done.stdout
    told = portal("check", cwd=tmp_path).stdout
    assert "| one" not in told and "kept back, because declared destructive: up.wipe. " in told
    assert "mcp-code-portal check loud\n" in told
    assert "capabilities.tools.deny: [up.echo]" in told
    done = portal("check", "up", cwd=tmp_path)
    [drop, echo, wipe] = [line.split() for line in done.stdout.splitlines() if re.match(r"up\.\w+ ", line)]
    assert (done.returncode, echo) == (0, ["up.echo", "nothing", "yes"])
    assert drop[2:] == ["after", "approval:", "capabilities.tools.ask:", "up.drop"]
    assert wipe[:3] == ["up.wipe", "destroys", "no:"] and wipe[-2:] == ["names", "it"]
    assert portal("check", "upp", cwd=tmp_path).returncode == 2


def test_defaults_reach_each_child_and_what_the_shell_has_beside_them_is_named(
    portal: PortalCommand, tmp_path: Path
) -> None:
    show = "import os, sys; sys.exit(' '.join(os.environ.get(n, '-') for n in ('SSL_CERT_FILE', 'A', 'B', 'NO_PROXY')))"
    child = {"command": "python3", "args": ["-c", show], "env": {"A": "own"}}
    defaults = {"env": {"SSL_CERT_FILE": "/ca.pem", "A": "default", "B": ""}}
    write_manifest(tmp_path, {"up": child, "other": child}, defaults=defaults)
    shell = {**dict.fromkeys(filter(NETWORK_VARIABLE.fullmatch, os.environ), ""), "NO_PROXY": "corp"}
    done = portal("check", "up", cwd=tmp_path, env={**shell, "SSL_CERT_FILE": "/other"})
    assert "| /ca.pem own - -\n" in done.stdout
    assert "your shell has NO_PROXY, the server up does not get it" in done.stdout
    told = portal("check", cwd=tmp_path, env={**shell, "SSL_CERT_FILE": "/other"}).stdout
    assert told.count("your shell has") == 1
    assert "your shell has NO_PROXY, the servers up, other do not get it" in told
