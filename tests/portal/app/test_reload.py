"""A changed manifest takes effect at the next request and at the next call, and a wrong one changes nothing."""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from mcp_types import CallToolResult
from structlog.testing import capture_logs

from manifests.errors import ManifestError
from manifests.grants import NETWORK
from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.manifest import Manifest
from manifests.own_files import lock_text
from manifests.portal_manifest import StdioUpstream
from portal.app.reload import without_fixed
from portal.catalog.authority import Policy
from sandbox_runtime.call_port import ToolCall
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened, raw, structured, tool, write_manifest

READS: Json = {"readOnlyHint": True}
SHUT: Json = {"tools": {"deny": ["*"]}}


def changed(folder: Path, change: Callable[[Any], object], environ: dict[str, str] | None = None) -> Manifest:
    """The manifest after its file was changed."""
    path = folder / "portal.yaml"
    data = yaml.safe_load(path.read_text())
    change(data)
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return load_manifest(path, environ or {})


async def reload(portal: Opened, folder: Path, change: Callable[[Any], object], **environ: str) -> None:
    await portal.portal.reload.apply(changed(folder, change, environ))


async def test_changed_default_environment_reaches_the_child(tmp_path: Path) -> None:
    async with opened(tmp_path, {"up": raw(tools=[])}) as portal:
        await reload(portal, tmp_path, lambda data: data.update(defaults={"env": {"A": "b"}}))
        spec = portal.portal.fleet["up"].spec
        assert isinstance(spec, StdioUpstream) and spec.env["A"] == "b"
        assert portal.portal.manifest.portal.defaults.env == {"A": "b"}, "there is one present manifest"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"upstreams": {}}, "no upstream 'up'"),
        ({"capabilities": {"tools": {"deny": ["write"]}}}, "deny: write"),
    ],
)
async def test_call_in_flight_ends_and_the_next_one_is_held_to_new_rules(
    tmp_path: Path, changes: Json, told: str
) -> None:
    may_answer, answers = anyio.Event(), []

    async def ask(arguments: dict[str, Json]) -> CallToolResult:
        await may_answer.wait()
        return structured({"answered": True})

    up = Peer(tool("ask"), tool("write"), ask=ask)
    async with opened(tmp_path, {"up": up}) as portal, anyio.create_task_group() as tasks:

        async def work() -> None:
            answers.append(await portal.run("await up.ask()\nawait up.write()"))

        tasks.start_soon(work)
        await up.until(lambda: bool(up.calls))
        await reload(portal, tmp_path, lambda data: data.update(changes))
        may_answer.set()
    (answer,) = answers
    assert [row["state"] for row in answer["calls"]] == ["done", "refused"]
    assert answer["error"]["code"] == "not_granted" and told in answer["error"]["message"]
    assert [name for name, _ in up.calls] == ["ask"]


async def test_rules_change_without_a_new_connection(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with opened(tmp_path, {"up": raw(pid_file=str(pids))}) as portal:
        assert await portal.result_of("await up.echo(a=1)") == {"a": 1}
        await reload(portal, tmp_path, lambda data: data["upstreams"]["up"].update(SHUT))
        assert (await portal.error_of("await up.echo()"))["code"] == "not_granted"
        await reload(portal, tmp_path, lambda data: data["upstreams"]["up"].pop("tools"))
        assert await portal.result_of("await up.echo(a=1)") == {"a": 1}
    assert len(pids.read_text().split()) == 1


async def test_upstream_whose_variable_changed_is_restarted_and_scripts_do_not_notice(tmp_path: Path) -> None:
    tools = [{"name": "environment", "inputSchema": {"type": "object"}}]
    entry = {**raw(tools=tools), "cwd": "${FOLDER}"}
    script = "(await up.environment())['folder'].rpartition('/')[2]"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with opened(tmp_path, {"up": entry}, environ={"FOLDER": "one"}) as portal:
        assert await portal.result_of(script) == "one"
        await reload(portal, tmp_path, lambda data: None, FOLDER="two")
        assert await portal.result_of(script) == "two"


async def test_call_that_waits_for_an_upstream_goes_to_the_one_that_replaces_it(tmp_path: Path) -> None:
    fifo, answers = tmp_path / "fifo", []
    os.mkfifo(fifo)
    async with opened(tmp_path, {"up": raw()}) as portal, anyio.create_task_group() as tasks:

        async def work() -> None:
            answers.append(await portal.result_of("await up.echo(a=1)"))

        await portal.result_of("await up.echo(a=1)")
        hanging = raw(waits_for=str(fifo))
        await reload(portal, tmp_path, lambda data: data["upstreams"].update(up=hanging))
        waiting = portal.portal.fleet["up"]
        tasks.start_soon(work)
        with anyio.fail_after(DEADLINE_SECONDS):
            while not waiting.availability.users:
                await anyio.lowlevel.checkpoint()
        await reload(portal, tmp_path, lambda data: data["upstreams"].update(up=raw()))
    assert answers == [{"a": 1}]


@pytest.mark.parametrize(("removed", "sources"), [("", {"dead"}), ("dead", {"up", NETWORK})])
async def test_words_of_an_upstream_that_was_removed_count_as_those_of_any(
    tmp_path: Path, removed: str, sources: set[str]
) -> None:
    async with opened(tmp_path, {"up": Peer(), "dead": raw(exits_with=3)}) as portal:
        await portal.search()  # which waits for the upstreams
        calls = await portal.calls()
        await reload(portal, tmp_path, lambda data: data["upstreams"].pop(removed, None))
        calls.open(1, "dead.echo")
        outcome = await calls(ToolCall(1, "dead.echo", {}))
        assert outcome.error is not None and outcome.error.code == "upstream_unavailable"
        assert calls.run.authorization.sources == sources


@pytest.mark.parametrize(
    ("change", "named", "code"),
    [
        (lambda upstreams: upstreams.update(new=raw()), {}, "upstream_refused"),  # `up` has no resources
        (lambda upstreams: upstreams.pop("old"), {"upstream": "old"}, "not_granted"),
    ],
)
async def test_running_script_reads_resources_of_the_upstreams_that_it_began_with(
    tmp_path: Path, change: Callable[[Any], object], named: dict[str, Json], code: str
) -> None:
    upstreams: dict[str, Any] = {"up": Peer(), **({"old": raw()} if named else {})}
    async with opened(tmp_path, upstreams) as portal:
        await portal.search()  # which waits for the upstreams
        calls = await portal.calls()
        await reload(portal, tmp_path, lambda data: change(data["upstreams"]))
        calls.open(1, "portal.read_resource")
        outcome = await calls(ToolCall(1, "portal.read_resource", {"uri": "a:b", **named}))
        assert outcome.error is not None and outcome.error.code == code


async def test_what_needs_a_restart_is_told_and_not_applied(tmp_path: Path) -> None:
    async with opened(tmp_path, {"up": Peer()}) as portal:

        def change(data: Any) -> None:
            data["server"] |= {"workers": 3, "kernels": {"javascript": True}}
            data["runs"] = {"keep_days": 1}
            data["capabilities"] = {**SHUT, "files": {"workspace": "data"}}

        (tmp_path / "data").mkdir()
        with capture_logs() as events:
            await reload(portal, tmp_path, change)
        (ignored,) = [each for each in events if each["event"] == "manifest_change_ignored"]
        assert ignored["keys"] == ["server.kernels", "server.workers", "capabilities.files", "runs"]
        assert ignored["hint"] == "restart to apply"
        assert (await portal.error_of("open('/workspace/x', 'w')"))["code"] != "not_granted"
        assert (await portal.error_of("await up.echo()"))["code"] == "not_granted"


async def test_reload_names_what_it_changed(tmp_path: Path) -> None:
    async with opened(tmp_path, {"up": raw(), "old": raw()}) as portal:

        def change(data: Any) -> None:
            data["upstreams"]["new"] = data["upstreams"].pop("old")
            data["upstreams"]["up"]["call_seconds"] = 7

        with capture_logs() as events:
            await reload(portal, tmp_path, change)
        (told,) = [each for each in events if each["event"] == "manifest_reloaded"]
        assert (told["added"], told["removed"], told["restarted"]) == (["new"], ["old"], ["up"])


async def test_manifest_that_does_not_fit_what_stays_is_refused_whole(tmp_path: Path) -> None:
    """Files are shared by tenant until a restart, so a token without a tenant is of no use until then."""
    (tmp_path / "data").mkdir()
    files = {"files": {"workspace": "data", "share": "tenant"}}
    token = {"token": "a-token-of-a-tenant", "tenant": "one"}
    async with opened(tmp_path, {"up": Peer()}, capabilities=files, server={"tokens": [token]}) as portal:

        def change(data: Any) -> None:
            data["capabilities"]["files"]["share"] = "all"
            data["server"]["tokens"] = [{"token": "a-token-of-nobody"}]
            data["upstreams"] = {}

        with pytest.raises(ManifestError, match=r"no tenant[^$]*Restart to apply .*capabilities\.files"):
            await reload(portal, tmp_path, change)
        assert await portal.result_of("await up.echo(a=1)") == {"a": 1}


async def test_manifest_without_the_profile_of_the_portal_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, {"up": Peer()}, profile="reader", profiles={"reader": {}}) as portal:
        with pytest.raises(ManifestError, match="no profile 'reader'"):
            await reload(portal, tmp_path, lambda data: data.pop("profiles"))
        await reload(portal, tmp_path, lambda data: data.update(profiles={"reader": SHUT}))
        assert (await portal.error_of("await up.echo()"))["code"] == "not_granted"


async def test_accepted_definitions_are_read_again(tmp_path: Path) -> None:
    async with opened(tmp_path, {"up": Peer()}) as portal:
        assert await portal.result_of("await up.echo(a=1)") == {"a": 1}
        (tmp_path / "portal.lock").write_text(lock_text(()))
        await reload(portal, tmp_path, lambda data: None)
        assert (await portal.error_of("await up.echo()"))["code"] == "quarantined"


async def test_session_keeps_its_variables_and_the_sources_of_their_data(tmp_path: Path) -> None:
    async with opened(tmp_path, {"crm": Peer(), "mail": Peer()}) as portal:
        session = (await portal.run("kept = await crm.echo(a=1)", session="new"))["session"]
        flows = {"flows": [{"from": ["crm"], "not_to": ["mail"]}]}
        await reload(portal, tmp_path, lambda data: data.update(capabilities=flows))
        assert await portal.result_of("kept", session=session) == {"a": 1}
        answer = await portal.run("await mail.echo(**kept)", session=session)
        assert [row["state"] for row in answer["calls"]] == ["refused"]


async def test_what_is_prepared_is_in_effect_for_all_profiles_at_once_or_for_none(tmp_path: Path) -> None:
    profiles = {"writer": {}, "reader": {}}
    async with opened(tmp_path, {"up": Peer()}, bound=["writer"], profiles=profiles) as portal:
        views, before = portal.portal.views, portal.portal.manifest
        wanted = changed(tmp_path, lambda data: data.update(capabilities=SHUT))
        prepared = await views.prepared(wanted, ["reader", "writer"])
        policies = [views[each].authority.policy for each in (None, "writer")]
        assert views.manifest is portal.portal.manifest is before
        assert [each.manifest.portal.capabilities for each in policies] == [before.portal.capabilities] * 2
        assert await portal.result_of("await up.echo(a=1)") == {"a": 1}
        views.switch(prepared)
        now = {each: views[each].authority.policy for each in (None, "reader", "writer")}
        assert now == prepared.policies and views.go_on().keys() == now.keys()
        assert views.manifest is wanted
        assert (await portal.error_of("await up.echo(a=1)"))["code"] == "not_granted"


async def test_only_the_policy_in_effect_is_kept(tmp_path: Path) -> None:
    """A former one has the tokens and rules of its manifest."""
    async with opened(tmp_path, {"up": Peer()}) as portal:
        await reload(portal, tmp_path, lambda data: data.update(capabilities=SHUT))
        await portal.portal.catalog.fresh()
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, Policy)]
        assert [each for each in kept if each.manifest.folder == tmp_path] == [portal.portal.authority.policy]


async def test_reload_decides_about_the_fallback_of_the_next_call(tmp_path: Path) -> None:
    async with opened(
        tmp_path, {"down": raw(exits_with=3), "up": Peer(tool("echo", annotations=READS))}
    ) as portal:
        await portal.search()  # which waits for the upstreams
        calls, found = await portal.calls(), []
        for seq, fallback in enumerate(({}, {"down.echo": ["up.echo"]}, {}), 1):
            await reload(portal, tmp_path, lambda data, fallback=fallback: data.update(fallback=fallback))
            calls.open(seq, "down.echo")
            outcome = await calls(ToolCall(seq, "down.echo", {"a": 1}))
            found.append(outcome.error.code if outcome.error else outcome.value)
        assert found == ["upstream_unavailable", {"a": 1}, "upstream_unavailable"]


async def test_profile_that_the_manifest_has_no_more_grants_nothing(tmp_path: Path) -> None:
    profiles = {"writer": {}}
    async with opened(tmp_path, {"up": Peer()}, bound=["writer"], profiles=profiles) as portal:
        view = portal.portal.views["writer"]
        await reload(portal, tmp_path, lambda data: data.pop("profiles"))
        assert not (await view.catalog.fresh()).library.functions
        assert view.execution.profile == "writer", "its runs in the background do not become somebody else's"
        assert await portal.result_of("await up.echo(a=1)") == {"a": 1}


async def test_secret_that_comes_with_a_reload_is_masked(tmp_path: Path) -> None:
    tools = [{"name": "error", "inputSchema": {"type": "object"}}]
    async with opened(tmp_path, {"up": Peer()}) as portal:

        def change(data: Any) -> None:
            data["upstreams"]["new"] = {
                **raw(tools=tools, refuses_with="no: a-new-secret"),
                "env": {"KEY": "${KEY}"},
            }

        await reload(portal, tmp_path, change, KEY="a-new-secret")
        with anyio.fail_after(DEADLINE_SECONDS):
            await portal.portal.fleet["new"].started()
        assert portal.portal.fleet["new"].state.detail
        assert "a-new-secret" not in portal.portal.fleet["new"].state.detail


def test_secret_of_a_section_that_waits_for_a_restart_stays_masked(tmp_path: Path) -> None:
    path = write_manifest(tmp_path, {}, runs={"key": "${KEY}"})
    running, wanted = (load_manifest(path, {"KEY": key}) for key in ("the-key-in-use-1", "the-key-to-come-2"))
    manifest, waiting = without_fixed(running, wanted)
    assert waiting == ["runs"]
    assert manifest.hidden == {"the-key-in-use-1", "the-key-to-come-2"}


def test_changed_middleware_waits_for_a_restart(tmp_path: Path) -> None:
    path = write_manifest(tmp_path, {}, middleware=["guard:f"])
    (tmp_path / "guard.py").write_text("one")
    running = load_manifest(path, {})
    assert without_fixed(running, load_manifest(path, {}))[1] == []
    (tmp_path / "guard.py").write_text("two")
    assert without_fixed(running, load_manifest(path, {}))[1] == ["middleware"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts what Linux shows")
async def test_nothing_is_left_of_connections_that_were_replaced_and_removed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    entry = raw(pid_file=str(pids))
    async with opened(tmp_path, {"up": Peer()}) as portal:
        assert await portal.result_of("await up.echo(a=1)") is not None
        before = count_pipes()
        for _ in range(2):
            for settings in ({"call_seconds": 20}, {"call_seconds": 30}):
                extra = {"extra": {**entry, **settings}}
                await reload(portal, tmp_path, lambda data, extra=extra: data["upstreams"].update(extra))
                assert await portal.result_of("await extra.echo(a=1)") == {"a": 1}
            await reload(portal, tmp_path, lambda data: data["upstreams"].pop("extra"))
            with anyio.fail_after(DEADLINE_SECONDS):
                while any(os.path.isdir(f"/proc/{pid}") for pid in pids.read_text().split()):  # noqa: ASYNC110, ASYNC240
                    await anyio.sleep(0.05)  # /proc has no event
                while count_pipes() > before:  # noqa: ASYNC110
                    await anyio.sleep(0.05)  # nor have these
    assert len(pids.read_text().split()) == 4


def count_pipes() -> int:
    links = [os.readlink(entry) for entry in os.scandir("/proc/self/fd") if entry.is_symlink()]
    return sum(link.startswith("pipe:") for link in links)
