"""Scripts in another language than Python: under the same rules, and only where the manifest switches it on."""

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from manifests.json_value import Json
from manifests.kernels import KernelName
from manifests.loader import load_manifest
from portal.app import kernels
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.catalog.check.typescript_server import find_typescript
from portal.identity.approvers import Decider
from portal.records.store.run_tables import RunTables
from portal.runs.answer import at_line
from portal.runs.components import Components
from portal.runs.past import HEAD, RunHead
from portal.runs.run_page import run_page
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.result import RunError
from sandbox_runtime.sandbox import Sandbox
from tests.portal.commands import PortalCommand
from tests.portal.peers import Opened, Peer, opened, schema, states, text_of, tool, write_manifest
from tests.portal.runs.test_waiting import ASKS, KEPT, answer_of, found, git, waiting

ON: Json = {"kernels": {"javascript": True}}
JS: KernelName = "javascript"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels of the sandboxes that portals start."""
    names, start = list[str](), kernels.open_sandbox

    def noting(**given: Any) -> Any:
        names.append(given["kernel"].name)
        return start(**given)

    monkeypatch.setattr(kernels, "open_sandbox", noting)
    return names


async def refused(portal: Opened, name: str, **arguments: Json) -> tuple[str, str]:
    """The code of a refusal, and all that it says."""
    result = await portal.call(name, **arguments)
    assert result.is_error and result.structured_content is not None
    error = result.structured_content["error"]
    return error["code"], f"{error['message']} {error['hint']}"


async def test_a_kernel_that_is_off_is_refused_with_those_that_are_on(
    tmp_path: Path, started: list[str]
) -> None:
    asked: list[dict[str, Json]] = [
        {"name": "execute_code", "code": "1"},
        {"name": "execute_code", "code": "1", "background": True},
        {"name": "execute_code", "code": "1", "session": "new"},
        {"name": "docs_search", "query": "x"},
    ]
    async with opened(tmp_path) as portal:
        for arguments in asked:
            code, told = await refused(portal, kernel=JS, **arguments)
            assert code == "kernel_off"
            assert "python" in told and "server: {kernels: {javascript: true}}" in told
            code, told = await refused(portal, kernel="ruby", **arguments)
            assert (code, "'python' or 'javascript'" in told) == ("invalid_arguments", True)
        assert await portal.result_of("1 + 1", kernel="python") == 2
    assert JS not in started


async def test_a_script_calls_upstreams_in_a_sandbox_that_starts_with_the_first(
    tmp_path: Path, started: list[str]
) -> None:
    peer = git()
    async with opened(tmp_path, {"git": peer}, server=ON, runs={"trail": "full"}) as portal:
        assert await portal.result_of("1 + 1") == 2
        assert JS not in started
        done = await portal.run("const a = await git.push({n: 1});\na.n + 1", kernel=JS)
        assert (done["result"], states(done)) == (2, [("git.push", "done")])
        assert peer.calls == [("push", {"n": 1})]
        store = portal.portal.runs.store_or_error()
        page = await store.read(partial(run_page, run=done["run_id"]))
        assert (page.kernel, [call.line for call in page.calls]) == (JS, [0])
        assert page.row.title.startswith("javascript: const a = ")
        call = await portal.call(
            "execute_code", code="Array.from({length: 5000}, (_, id) => ({id}))", kernel=JS
        )
        assert '"array":"5,000 of {id: number}"' in text_of(call)
        failed = await portal.call("execute_code", code="const f = a => a.b.c;\nf({})", kernel=JS)
        assert '"at":"line 1: const f = a => a.b.c; (from line 2)"' in text_of(failed)
        absent = await portal.error_of("await git.pusch({})", kernel=JS)
        assert absent["code"] == "check_failed" and "git.push({" in absent["hint"]
        typed = "class A { async n() { return git.push({}) } }\n;[...new A().n()]"  # TypeScript alone sees it
        assert (
            find_typescript() is None or (await portal.error_of(typed, kernel=JS))["code"] == "check_failed"
        )
    assert started.count(JS) == 1


async def test_without_a_check_a_mistake_fails_at_its_call_with_its_line_and_can_be_caught(
    tmp_path: Path,
) -> None:
    state: Json = {"type": "string", "enum": ["open", "closed"]}
    peer = Peer(tool("get", schema("id", id={"type": "integer"})), tool("list", schema(state=state)))
    catching = "try {{\n{} }} catch (e) {{ [e.code ?? e.name, `${{e.message}} ${{e.hint}}`] }}"
    async with opened(tmp_path, {"tickets": peer}, server={**ON, "check": "off"}) as portal:
        for script, code, word in (
            ("const who = {a: 1}\nawait tickets.get({id: who})", "invalid_arguments", "id"),
            ("const state = 'opne'\nawait tickets.list({state})", "invalid_arguments", "state"),
            ("const id = 1\nawait tickets.gett({id})", "unknown_function", "gett"),
        ):
            assert (await portal.error_of(script, kernel=JS))["line"] == 2
            caught, told = await portal.result_of(catching.format(script), kernel=JS)
            assert (caught, word in told, "tickets." in told) == (code, True, True), told
    assert peer.calls == []


async def test_a_parked_run_goes_on_in_its_kernel_and_waits_while_that_is_off(tmp_path: Path) -> None:
    peer = git()
    sections: dict[str, Json] = {"capabilities": ASKS, "runs": KEPT}
    code = "const a = await git.status({n: Math.random()});\nconst b = await git.merge({id: 7});\n[a, b]"
    async with opened(tmp_path, {"git": peer}, server=ON, **sections) as portal:
        run = (await waiting(portal, code, kernel=JS))["run_id"]
    async with opened(tmp_path, {"git": peer}, **sections) as portal:
        await portal.portal.runs.decide(run, None, Decider("ann"), is_approved=True)
        is_postponed = await found(
            portal, partial(RunTables.row, run=run), lambda row: row.state == "waiting" and row.wake_at
        )
        assert is_postponed
    async with opened(tmp_path, {"git": peer}, server=ON, **sections) as portal:
        done = await answer_of(portal, run)
    [(_, asked), (_, merged)] = peer.calls
    assert done["result"] == [asked, merged] and merged == {"id": 7}
    assert 0 < asked["n"] < 1


def test_the_journal_names_the_kernel_of_a_run_that_is_not_in_python() -> None:
    for kernel in (None, "python", JS):
        text = HEAD.dump_json(RunHead(ExecuteCode("1", kernel=kernel), LOCAL, None))
        assert (b"kernel" in text, HEAD.validate_json(text).kernel) == (kernel == JS, kernel or "python")


async def test_a_kernel_that_does_not_start_is_told_and_python_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(KERNELS[JS], file="missing.wasm")
    monkeypatch.setattr(kernels, "KERNELS", {**KERNELS, JS: broken})
    async with opened(tmp_path, server=ON) as portal:
        for _ in range(2):
            code, told = await refused(portal, "execute_code", code="1", kernel=JS)
            assert (code, "missing.wasm" in told) == ("sandbox_busy", False), "the log says why"
        assert await portal.result_of("1 + 1") == 2


async def test_the_component_is_kept_if_the_client_leaves_once_the_kernel_is_open(tmp_path: Path) -> None:
    class Leaving(dict[KernelName, Sandbox]):
        def __setitem__(self, name: KernelName, sandbox: Sandbox) -> None:
            super().__setitem__(name, sandbox)
            client.cancel()

    manifest = load_manifest(write_manifest(tmp_path, {}, server=ON), {})
    async with AsyncExitStack() as stack:
        components = Components(tmp_path / "components", stack, print)
        own = kernels.Kernels(manifest, stack, print, components=components, opened=Leaving())
        with anyio.CancelScope() as client:
            await own.sandbox(JS)
        assert (tmp_path / "components" / f"{own.opened[JS].component}.wasm").exists()


async def test_a_session_has_one_kernel(tmp_path: Path) -> None:
    async with opened(tmp_path, server=ON) as portal:
        session = (await portal.run("const n = 41", session="new", kernel=JS))["session"]
        code, told = await refused(portal, "execute_code", code="n", session=session)
        assert (code, 'kernel="javascript"' in told) == ("other_kernel", True)
        assert await portal.result_of("n + 1", session=session, kernel=JS) == 42
        assert await portal.result_of("1 + 1") == 2


async def test_docs_search_speaks_the_language_of_the_last_script_of_its_client(tmp_path: Path) -> None:
    async with opened(tmp_path, {"git": git()}, server=ON, mode="legacy") as portal:
        python = await portal.search_text("git.push", kernel="python")
        typescript = await portal.search_text("git.push")
        assert "Promise<" in typescript and "->" in python
        await portal.run("1")
        assert await portal.search_text("git.push") == python
        assert await portal.search_text("git.push", kernel=JS) == typescript
        await portal.run("1", kernel=JS)
        assert await portal.search_text("git.push") == typescript
        (found,) = await portal.result_of("(await portal.search('git.push'))['functions']")
        assert "->" in found["signature"], "a script is answered in its own language"


@pytest.mark.parametrize(
    "definition", ["function f(x) { return x.y.z }", "const f = x => x.y.z", "f = x => 1"]
)
def test_a_line_of_javascript_is_told_with_its_source_unless_it_is_of_an_earlier_script(
    definition: str,
) -> None:
    message = "TypeError: no\n    at script.js:1"
    error = RunError("script_error", message, 1, "", f"{message}\n    at f (script.js:1)\n    at script.js:2")
    assert at_line(error, f"{definition}\nf({{}})", JS) == f"line 1: {definition} (from line 2)"
    assert at_line(error, "1\nf({})", JS) == "line 1 (from line 2)"


def test_commands_know_the_language_of_a_file_and_of_a_run(tmp_path: Path, portal: PortalCommand) -> None:
    (tmp_path / "a.ts").write_text("const n: number = Math.random();\nawait portal.sleep(0.2);\nn")
    manifest = write_manifest(tmp_path, {}, server=ON, runs=KEPT)
    done = portal("run", "a.ts", cwd=tmp_path)
    assert done.returncode == 0 and 0 < float(done.stdout) < 1
    (run,) = json.loads(portal("runs", "list", "--all", "--json", cwd=tmp_path).stdout)
    assert run["script"] == "javascript: const n: number = Math.random();"
    shown = json.loads(portal("runs", "show", run["run_id"], "--json", cwd=tmp_path).stdout)
    assert (shown["kernel"], shown["answer"]["result"]) == (JS, float(done.stdout))
    assert "identical" in portal("runs", "replay", run["run_id"], cwd=tmp_path).stdout
    forked = json.loads(
        portal("runs", "fork", run["run_id"], "--at", "1", "--yes", "--json", cwd=tmp_path).stdout
    )
    shown = json.loads(portal("runs", "show", forked["run_id"], "--json", cwd=tmp_path).stdout)
    assert (shown["kernel"], shown["parent"]) == (JS, run["run_id"])
    piped = portal("run", "-", "--kernel", JS, cwd=tmp_path, stdin="[1].map(n => n + 1)")
    assert json.loads(piped.stdout) == [2]
    checked = json.loads(portal("check", "--json", cwd=tmp_path).stdout)
    assert JS in checked["sandbox"] and not checked["errors"]
    manifest.write_text("server: {}")
    off = portal("run", "a.ts", cwd=tmp_path)
    assert (off.returncode, "kernel_off" in off.stderr) == (1, True)
