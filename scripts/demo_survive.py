"""Shows a run that survives: its portal is killed in the middle, started again, and a person approves its last call."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TextIO, TypeVar

import anyio
import httpx2
import yaml
from demo_screen import Screen
from demo_servers import HOME, ROOT, DemoError, demo_servers, fetch_tools, fetched_tools, make_history
from demo_show import LOG, heartbeat, reason
from mcp import MCPError

FOLDER = HOME / "survive"
REPOSITORY = FOLDER / "repository"
MANIFEST = FOLDER / "portal.yaml"
COMMAND = ROOT / ".venv/bin/mcp-code-portal"
WAIT_SECONDS = 60
STEPS = 6
HOOK_SECONDS = 0.6
"""So long a commit takes here, so that the kill comes during one."""

SCRIPT = f"""\
REPOSITORY = {str(REPOSITORY)!r}

async def commit(step):
    await git.git_add(repo_path=REPOSITORY, files=[f"{{step}}.txt"])
    await git.git_commit(repo_path=REPOSITORY, message=f"step {{step}}")

for step in range(1, {STEPS + 1}):
    try:
        await commit(step)
    except ToolError as error:
        if error.code != "outcome_unknown":
            raise
        # The portal was killed during this call. Look before doing it again.
        if f"step {{step}}" not in await git.git_log(repo_path=REPOSITORY):
            await commit(step)
await git.git_create_branch(repo_path=REPOSITORY, branch_name="release")  # a rule asks a person first
f"{{step}} steps, and a branch"
"""
Found = TypeVar("Found")


def run_survival() -> int:
    """Run it. Its portal has a manifest, a store of runs and a repository of its own, all new."""
    started = time.monotonic()
    try:
        HOME.mkdir(exist_ok=True)
        with open(LOG, "w") as log:
            prepare(log)
            show(Screen(), log)
    except (DemoError, MCPError, OSError, httpx2.HTTPError, ExceptionGroup) as error:
        print(f"demo: {reason(error)}", file=sys.stderr)
        return 1
    print(f"\n{time.monotonic() - started:.0f} s. Look into .demo/survive, and .demo/demo.log")
    return 0


def prepare(log: TextIO) -> None:
    """Make the repository and the manifest, and fetch the git server if it is not there yet."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    make_history(REPOSITORY)
    for step in range(1, STEPS + 1):
        (REPOSITORY / f"{step}.txt").write_text("done\n")
    hook = REPOSITORY / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nsleep {HOOK_SECONDS}\n")
    hook.chmod(0o755)
    git = demo_servers()["git"]
    if fetched_tools("git") is None:
        with heartbeat(f"fetching {git.packages[0]} from PyPI and asking it for its tools"):
            anyio.run(fetch_tools, "git", log)
    upstream = {**git.upstream(), "tools": {"ask": ["git_create_branch"]}}
    upstream["args"] = [*git.upstream()["args"][:-1], str(REPOSITORY)]
    manifest = {"upstreams": {"git": upstream}, "server": {"start_seconds": 60}}
    MANIFEST.write_text(yaml.safe_dump(manifest, sort_keys=False))


def show(screen: Screen, log: TextIO) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with httpx2.Client(base_url=f"http://{address}", timeout=WAIT_SECONDS, trust_env=False) as client:
        screen.show_script(
            "POST /runs", "a script in the background; its commits may not be made twice", SCRIPT
        )
        with heartbeat("starting a portal, and the run"), portal(address, client, log) as process:
            run = client.post("/runs", json={"code": SCRIPT}).raise_for_status().json()["run_id"]
            until("half of the steps", lambda: state(client, run) and len(commits()) >= STEPS // 2)
            time.sleep(HOOK_SECONDS / 2)  # now it is in the middle of the next one
            process.kill()
            process.wait()
        screen.show_lines("kill -9", "the portal is gone, in the middle of a call", repository_lines())
        with ExitStack() as stack:
            with heartbeat("starting the portal again; it resumes the run by itself"):
                stack.enter_context(portal(address, client, log))
                until("the question", lambda: state(client, run)["state"] == "waiting")
                listed = shell("runs")
            screen.show_lines("$ mcp-code-portal runs", "the run went on, and waits for a person", listed)
            with heartbeat("approving the call, and waiting for the end of the run"):
                approved = shell("runs", "approve", run, "--yes")
                told = until("its end", lambda: ended(client, run))
            screen.show_lines(f"$ mcp-code-portal runs approve {run[:12]} --yes", "", approved)
    screen.show_answer(told["answer"])
    screen.show_lines("git log", "each step once", repository_lines())
    if told["state"] != "ok" or commits() != [f"step {step}" for step in range(1, STEPS + 1)]:
        raise DemoError("this is not what was to be shown: each step once, and a run that ends well")


@contextmanager
def portal(address: str, client: httpx2.Client, log: TextIO) -> Iterator[subprocess.Popen[bytes]]:
    """A portal that is ready, with a state folder of its own."""
    process = subprocess.Popen(
        [COMMAND, "serve", "--config", MANIFEST, "--http", address],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment(),
        start_new_session=True,  # Ctrl-C is for the demo, which then ends it
    )
    try:
        until("the portal", lambda: is_ready(client, process))
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def is_ready(client: httpx2.Client, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise DemoError(f"the portal ended with {process.returncode}; .demo/demo.log says why")
    with suppress(httpx2.TransportError):
        return client.get("/readyz").is_success
    return False


def state(client: httpx2.Client, run: str) -> dict[str, Any]:
    """The run as JSON. Raises DemoError: it failed."""
    told: dict[str, Any] = client.get(f"/runs/{run}").raise_for_status().json()
    if told["state"] not in ("running", "waiting", "ok"):
        raise DemoError(f"the run ended as {told['state']}: {json.dumps(told['answer'])[:2000]}")
    return told


def ended(client: httpx2.Client, run: str) -> dict[str, Any] | None:
    told = state(client, run)
    return told if told["state"] == "ok" else None


def shell(*words: str) -> list[str]:
    """What the command line prints."""
    done = subprocess.run(
        [COMMAND, *words, "--config", MANIFEST],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
    )
    if done.returncode:
        raise DemoError(f"mcp-code-portal {' '.join(words)} failed: {done.stderr.strip()}")
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def until(what: str, found: Callable[[], Found]) -> Found:
    """Wait until something is found, and return it. Raises DemoError: it took too long."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (result := found()):
        if time.monotonic() > deadline:
            raise DemoError(f"{what} did not come within {WAIT_SECONDS} s; .demo/demo.log says more")
        time.sleep(0.05)
    return result


def environment() -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(FOLDER / "state")}


def commits() -> list[str]:
    """The subjects of the commits that scripts made, oldest first."""
    return git("log", "--reverse", "--format=%s", "HEAD")[1:]


def repository_lines() -> list[str]:
    branches = ", ".join(git("branch", "--format=%(refname:short)"))
    return [f"commits: {', '.join(commits())}", f"branches: {branches}"]


def git(*words: str) -> list[str]:
    return subprocess.run(
        ["git", "-C", REPOSITORY, *words],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
