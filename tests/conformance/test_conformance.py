"""The MCP project's own conformance suite against the portal, as a server and as a client.

`<revision>.yaml` lists, with reasons, what does not pass; the suite reads the same file. A scenario that checks nothing
counts as one that does not pass.
"""

import asyncio
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.acceptance import real_servers
from tests.acceptance.model import Json
from tests.acceptance.portal_process import http_portal, write_manifest
from tests.conformance.client import Driver
from tests.conformance.relay import TOKEN, open_relay
from tests.upstreams.peers import http_peer

pytestmark = [pytest.mark.servers, pytest.mark.anyio]

HERE = Path(__file__).parent
PAGE = real_servers.ROOT / "docs/conformance.md"
REVISIONS = ["2025-11-25", "2026-07-28"]
SAMPLED = [pytest.param(REVISIONS[0], marks=pytest.mark.release), REVISIONS[1]]
SUITE_SECONDS = 110

OUTCOMES = {
    "auth/resource-mismatch": "login refused",
    "auth/metadata-issuer-mismatch": "login refused",
    "auth/iss-supported-missing": "login refused",
    "auth/iss-wrong-issuer": "login refused",
    "auth/iss-unexpected": "login refused",
    "auth/iss-normalized": "login refused",
    "auth/scope-retry-limit": "not ready",
    "json-schema-ref-no-deref": "upstream_refused",  # the suite's server lists a tool and answers no call
}
"""How a scenario that passes ends for the script, if not well."""


NEVER_APPROVED = {"confirm_delete"}
"""The tools whose calls wait for a person: the suite gives an answer that decides nothing."""


@dataclass(frozen=True)
class Report:
    """The suite's findings."""

    exit_code: int
    output: str
    checks: dict[str, list[dict[str, Json]]]
    """By scenario."""

    def not_passing(self, listed: set[str]) -> set[str]:
        """`scenario:check` for each check that failed; `scenario` if it is listed whole, or has tested nothing."""
        found = set()
        for scenario, checks in self.checks.items():
            failed = {check["id"] for check in checks if check["status"] in ("FAILURE", "WARNING")}
            passed = {check["id"] for check in checks if check["status"] == "SUCCESS"}
            # The suite adds that one by itself: it says that messages have the right shape, whatever they mean.
            if not failed and not passed - {"wire-schema-valid"}:
                found.add(scenario)
            elif scenario in listed:
                found |= {scenario} if failed else set()
            else:
                found |= {f"{scenario}:{check}" for check in failed}
        return found


@pytest.mark.parametrize("revision", SAMPLED)
async def test_as_a_server(revision: str, tmp_path: Path, own_state: None) -> None:
    with http_portal(write_portal(tmp_path)) as portal:
        async with open_relay(portal.url) as relay, http_peer(relay.app) as peer:
            report = await suite("server", revision, tmp_path, "--url", f"http://127.0.0.1:{peer.port}/mcp")
    assert_as_listed(report, "server", revision)
    # An error about a call that was never made would look like the error that a scenario expects.
    assert relay.called - calls_made(tmp_path / "audit.jsonl") <= NEVER_APPROVED


@pytest.mark.parametrize("revision", SAMPLED)
async def test_as_a_client(revision: str, tmp_path: Path, own_state: None) -> None:
    driver = Driver(tmp_path)
    async with await asyncio.start_server(driver.handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        command = f"{sys.executable} -S {HERE / 'stub.py'} {port}"
        report = await suite("client", revision, tmp_path, "--command", command)
    assert_as_listed(report, "client", revision)
    passing = report.checks.keys() - {scenario_of(entry) for entry in listed("client", revision)}
    assert {name: driver.outcomes[name].partition(":")[0] for name in passing} == {
        name: OUTCOMES.get(name, "ok") for name in passing
    }


async def test_every_scenario_that_exists_is_run_or_listed(tmp_path: Path) -> None:
    _, output = await run("list")
    exist = set(re.findall(r"^  - (\S+)", output, re.MULTILINE))
    run_at_all = set().union(*(required(role, each) for role in ("server", "client") for each in REVISIONS))
    assert exist - run_at_all == listed("not_run", REVISIONS[-1]).keys()


def write_portal(folder: Path) -> Path:
    fixture = {
        "command": sys.executable,
        "args": ["-m", "tests.conformance.fixture_server"],
        "cwd": str(real_servers.ROOT),
        "sampling": {"max_tokens": 1000, "depth": 3},
        "roots": ["file:///srv"],
    }
    return write_manifest(
        folder,
        {"fixture": fixture},
        server={"offers": ["resources", "prompts"], "token": TOKEN},
        capabilities={"tools": {"ask": ["fixture.confirm_delete"]}},
        audit={"to": "audit.jsonl"},
    )


def calls_made(audit: Path) -> set[str]:
    """The tools of the fixture that were called, by the portal's audit log."""
    events = [json.loads(line) for line in audit.read_text().splitlines()]
    functions = {each["function"] for each in events if each["event"] == "call_decided"}
    return {name.removeprefix("fixture.") for name in functions if "/" not in name}


async def suite(role: str, revision: str, folder: Path, *target: str) -> Report:
    results = folder / "results"
    failures = ("--expected-failures", str(HERE / f"{revision}.yaml"))
    # The suite starts all clients at once, and each waits for its turn.
    options = ("--requirements", revision, "--timeout", "90000", "--output-dir", str(results), *failures)
    exit_code, output = await run(role, *target, *options)
    checks = {}
    for file in results.rglob("checks.json"):
        name = str(file.parent.relative_to(results)).removeprefix("server-" if role == "server" else "")
        checks[re.sub(r"-\d{4}-\d\d-\d\dT.*", "", name)] = json.loads(file.read_text())
    return Report(exit_code, output, checks)


async def run(*arguments: str) -> tuple[int, str]:
    command = [*real_servers.conformance_suite(), *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(SUITE_SECONDS):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


def assert_as_listed(report: Report, role: str, revision: str) -> None:
    assert report.checks.keys() == required(role, revision)
    reasons = listed(role, revision)
    summary = report.output.partition("SUMMARY ===")[2]
    assert report.not_passing(set(reasons)) == reasons.keys(), summary
    assert report.exit_code == 0, summary  # the suite's own verdict
    assert row(role, revision) in PAGE.read_text(), f"docs/conformance.md lacks: {row(role, revision)}"


def required(role: str, revision: str) -> set[str]:
    """The scenarios of a revision, scored and not."""
    path = real_servers.CONFORMANCE / f"requirements/{revision}.yaml"
    sets = yaml.safe_load(path.read_text())
    return {*sets[role], *(each["scenario"] for each in sets["not_scored"] if each["leg"] == role)}


def listed(role: str, revision: str) -> dict[str, str]:
    """The reasons by `scenario` or `scenario:check`. Each is the comment of its entry."""
    path = HERE / f"{revision}.yaml"
    section = re.search(rf"^{role}:\n((?:  .*\n)*)", path.read_text(), re.MULTILINE)
    lines = section[1].splitlines() if section else []
    reasons = dict(re.fullmatch(r"  - (\S+)  # (.+)", line).groups() for line in lines)
    assert [*reasons] == yaml.safe_load(path.read_text()).get(role, [])
    return reasons


def scenario_of(entry: str) -> str:
    return entry.partition(":")[0]


def row(role: str, revision: str) -> str:
    """The row of the table in docs/conformance.md."""
    scenarios, reasons = required(role, revision), listed(role, revision)
    names = sorted({scenario_of(entry) for entry in reasons})
    passed = len(scenarios) - len(names)
    return f"| {role}, {revision} | {passed} of {len(scenarios)} | {', '.join(names)} |"
