"""Data from an upstream stays from there, whatever a script keeps it in until another one sends it on."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from manifests.json_value import Json
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase
from portal.runs.decisions import fork_run
from tests.portal.app.test_http_app import client
from tests.portal.app.test_profiles import served
from tests.portal.clients import chatty_upstreams
from tests.portal.kept_runs import ALICE, BOB
from tests.portal.peers import Opened, Peer, opened, tool
from tests.portal.runs.test_waiting import answer_of, approved, waiting

pytestmark = pytest.mark.anyio

FLOWS: Json = [{"from": "mail", "not_to": "web"}]
RUNS: Json = {"store": "runs.sqlite", "park_after_seconds": 0.1}
LONG = "'x' * 200_000"
SEND = "await web.send(text='sent')"
READS = "open('f').read()"
TENANTS: Json = [{"token": "token-of-alice", "tenant": "anna"}, {"token": "token-of-bob", "tenant": "bert"}]


@asynccontextmanager
async def portal_of(
    folder: Path, flows: Json = FLOWS, share: str | None = None, **sections: Json
) -> AsyncIterator[tuple[Opened, Peer]]:
    """A portal whose rule keeps data of `mail` from `web`, and `web`. `note` is bound by no rule."""
    web, files = Peer(tool("send")), {"workspace": "data", "mode": "write", "share": share}
    (folder / "data").mkdir(exist_ok=True)
    peers = {"mail": Peer(tool("read")), "note": Peer(tool("read")), "web": web}
    grants: Json = {"flows": flows, **({"files": files} if share else {})}
    sections = {"runs": RUNS, "capabilities": grants, **sections}
    async with opened(folder, peers, **sections) as portal:
        yield portal, web


async def kept(portal: Opened, source: str, *, after: str = "", **arguments: Json) -> str:
    """The handle of a result that a script returned after it had called a source."""
    return (await portal.run(f"await {source}.read()\n{after}\n{LONG}", **arguments))["kept"]["result"]


async def outcome(portal: Opened, code: str, **arguments: Json) -> str:
    """ "sent", or the code of the error."""
    answer = await portal.run(code, **arguments)
    return answer["error"]["code"] if answer["error"] else "sent"


OF_SOURCES = pytest.mark.parametrize(("source", "told"), [("mail", "not_granted"), ("note", "sent")])


@OF_SOURCES
async def test_a_kept_result_has_its_sources(tmp_path: Path, source: str, told: str) -> None:
    async with portal_of(tmp_path) as (portal, _):
        handle = await kept(portal, source)
        again = await kept(portal, "note", after=f"await portal.recall({handle!r})")
    async with portal_of(tmp_path) as (portal, web):
        for use in ("recall({!r})", "search_text({!r}, 'x')", "search_text({!r}, 'none')"):
            web.calls.clear()
            for each in (handle, again):
                assert await outcome(portal, f"await portal.{use.format(each)}\n{SEND}") == told
            assert await outcome(portal, SEND) == "sent"
            assert len(web.calls) == (1 if told == "not_granted" else 3)


@pytest.mark.parametrize("source", ["mail", "note"])
async def test_the_answer_of_a_run_in_the_background_has_its_sources(tmp_path: Path, source: str) -> None:
    async with portal_of(tmp_path) as (portal, _):
        parked = await waiting(portal, f"await {source}.read()\nawait portal.approve('?')\n{LONG}")
        handle = (await approved(portal, parked["run_id"]))["kept"]["result"]
        told = await outcome(portal, f"await portal.recall({handle!r})\n{SEND}")
    assert told == ("not_granted" if source == "mail" else "sent")


GAINS: dict[str, Callable[[str], str]] = {
    "recall": lambda handle: f"x = await portal.recall({handle!r})",
    "search": lambda handle: f"x = await portal.search_text({handle!r}, 'x')",
    "files": lambda handle: f"x = {READS}",
}


@pytest.mark.parametrize("source", ["mail", "note"])
async def test_a_run_that_waited_or_was_forked_knows_its_sources(tmp_path: Path, source: str) -> None:
    told = "error" if source == "mail" else "ok"
    async with portal_of(tmp_path, share="all") as (portal, _):
        handle = await kept(portal, source, after="open('f', 'w').write('text')")
        codes = [f"{gain(handle)}\nawait portal.approve('?')\n{SEND}" for gain in GAINS.values()]
        runs = [await waiting(portal, code) for code in codes]
    async with portal_of(tmp_path, share="all") as (portal, web):
        for gain, parked in zip(GAINS, runs, strict=True):
            web.calls.clear()
            fork = partial(fork_run, run=parked["run_id"], seq=2 if gain != "files" else 1)
            row = await portal.portal.runs.store_or_error().write(fork)
            portal.portal.runs.changes.wake(row.id)
            await answer_of(portal, row.id, until="waiting")
            for run in (parked["run_id"], row.id):
                done = await approved(portal, run, until=told)
                assert source == "note" or done["error"]["code"] == "not_granted"
            assert len(web.calls) == (0 if source == "mail" else 2)


async def test_a_session_gives_its_sources_and_gets_those_of_what_it_recalls(tmp_path: Path) -> None:
    async with portal_of(tmp_path) as (portal, web):
        first, other = [(await portal.run("1", session="new"))["session"] for _ in range(2)]
        await portal.run("y = str(await mail.read())", session=first)
        handle = (await portal.run(f"y * 1_000 + {LONG}", session=first))["kept"]["result"]
        assert await outcome(portal, SEND, session=other) == "sent"
        await portal.run(f"z = await portal.recall({handle!r})", session=other)
        assert await outcome(portal, "await web.send(text=z[:9])", session=other) == "not_granted"
        assert len(web.calls) == 1


async def test_a_rule_that_is_set_later_covers_what_was_kept_before(tmp_path: Path) -> None:
    async with portal_of(tmp_path, flows=[], share="all") as (portal, _):
        handle = await kept(portal, "mail", after="open('f', 'w').write('text')")
    async with portal_of(tmp_path, share="all") as (portal, _):
        for use in (f"await portal.recall({handle!r})", READS):
            assert await outcome(portal, f"{use}\n{SEND}") == "not_granted"


@pytest.mark.parametrize(
    ("left", "told_of_files"), [("open('f', 'w').write('text')", "not_granted"), ("", "sent")]
)
async def test_what_was_kept_before_is_from_everywhere(tmp_path: Path, left: str, told_of_files: str) -> None:
    """The twin is a folder that was empty."""
    async with portal_of(tmp_path, share="all") as (portal, _):
        handle = await kept(portal, "note", after=left)
    tables = RunTables(SqliteDatabase(tmp_path / "runs.sqlite"), None)
    with tables.transaction():
        tables.database.execute("ALTER TABLE results DROP COLUMN sources")
        tables.database.execute("UPDATE meta SET value = ? WHERE key = 'format'", (b"3",))
    tables.close()
    (tmp_path / "workspaces.db").unlink(missing_ok=True)
    async with portal_of(tmp_path, share="all"):
        pass
    async with portal_of(tmp_path, share="all") as (portal, _):
        later = await kept(portal, "note")
        told = [await outcome(portal, f"await portal.recall({each!r})\n{SEND}") for each in (handle, later)]
        assert told == ["not_granted", "sent"]
        (tmp_path / "data/f").write_text("text")
        assert await outcome(portal, f"{READS}\n{SEND}") == told_of_files


SEEN = [
    READS,
    "import os; os.listdir()",
    "import os; os.path.exists('f')",
    "import os; os.path.getsize('f')",
    "import os; os.mkdir('new')",
    "open('g', 'x').close()",
    "import os; os.rename('f', 'g')",
]


async def test_a_shared_workspace_carries_the_sources_of_whoever_wrote(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/f").write_text("an operator's")
    async with portal_of(tmp_path, share="all") as (portal, web):
        # The twins: nothing was written yet; reading leaves nothing; and mail that is read later was not written.
        assert await outcome(portal, f"x = {READS}\n{SEND}") == "sent"
        await portal.run(f"await mail.read()\n{READS}")
        await portal.run("open('before', 'w').write('text')\nawait mail.read()")
        assert await outcome(portal, f"{READS}\n{SEND}") == "sent"
        await portal.run("await mail.read()\nopen('h', 'w').write('text')")
    async with portal_of(tmp_path, share="all") as (portal, web):
        for use in SEEN:
            web.calls.clear()
            assert await outcome(portal, f"{use}\n{SEND}") == "not_granted"
            assert await outcome(portal, SEND) == "sent"
            assert len(web.calls) == 1


async def test_what_a_script_removes_or_empties_is_still_carried(tmp_path: Path) -> None:
    async with portal_of(tmp_path, share="all") as (portal, _):
        await portal.run("await mail.read()\nopen('f', 'w').write('text')")
        await portal.run("import os\nos.rename('f', 'g')\nos.mkdir('d')\nos.rename('g', 'd/f')")
        await portal.run("import shutil, os\nopen('f', 'w').write(open('d/f').read())\nshutil.rmtree('d')")
        assert await outcome(portal, f"{READS}\n{SEND}") == "not_granted"


async def test_the_folder_of_a_tenant_carries_what_that_tenant_wrote(tmp_path: Path) -> None:
    server: Json = {"tokens": TENANTS}
    async with (
        portal_of(tmp_path, share="tenant", server=server) as (portal, _),
        served(portal) as url,
        client(url.removesuffix("/mcp"), headers=ALICE) as annas,
        client(url.removesuffix("/mcp"), headers=BOB) as berts,
    ):
        anna, bert = Opened(portal.portal, annas), Opened(portal.portal, berts)
        await anna.run("await mail.read()\nopen('f', 'w').write('text')")
        await bert.run("open('f', 'w').write('text')")
        told = [await outcome(each, f"{READS}\n{SEND}") for each in (anna, bert)]
    assert told == ["not_granted", "sent"]
    async with portal_of(tmp_path, share="all") as (portal, _):  # the same folders, shared otherwise
        assert await outcome(portal, f"open('bert/f').read()\n{SEND}") == "not_granted"


async def test_two_portals_of_one_manifest_know_of_each_others_files(tmp_path: Path) -> None:
    shared = partial(portal_of, tmp_path, share="all", runs={"park_after_seconds": 0.1})
    async with shared() as (one, _), shared() as (other, _):
        await one.run("open('f', 'w').write('text')")
        assert await outcome(other, f"{READS}\n{SEND}") == "sent"
        await one.run("await mail.read()\nopen('f', 'w').write('text')")
        assert await outcome(other, f"{READS}\n{SEND}") == "not_granted"


@pytest.mark.parametrize("share", ["session", "run"])
async def test_a_folder_that_nobody_shares_carries_nothing_to_others(tmp_path: Path, share: str) -> None:
    async with portal_of(tmp_path, share=share) as (portal, _):
        await portal.run("await mail.read()\nopen('f', 'w').write('text')")
        assert await outcome(portal, f"open('f', 'w').write('text')\n{SEND}") == "sent"


@pytest.mark.parametrize("forbidden", [["first", "second"], ["second", "first"], []])
async def test_a_list_of_all_resources_is_from_all_asked(tmp_path: Path, forbidden: list[str]) -> None:
    flows = [{"from": each, "not_to": "web"} for each in forbidden[:1]]
    sections: Json = {"capabilities": {"flows": flows}, "runs": RUNS}
    code = f"x = await portal.resources()\nawait portal.approve('?')\n{SEND}"
    async with chatty_upstreams() as upstreams:
        both: Any = dict(zip(("first", "second"), upstreams.values(), strict=False))
        async with opened(tmp_path, {**both, "web": Peer(tool("send"))}, **sections) as portal:
            run = (await waiting(portal, code))["run_id"]
        async with opened(tmp_path, {**both, "web": Peer(tool("send"))}, **sections) as portal:
            await approved(portal, run, until="error" if forbidden else "ok")


async def test_an_answer_of_middleware_is_from_the_upstream_for_which_it_answers(tmp_path: Path) -> None:
    kept = "    return Outcome('kept') if call.tool == 'read' else await next(call)\n"
    code = f"from portal.middleware import Outcome\n\nasync def kept(call, next):\n{kept}"
    (tmp_path / "kept.py").write_text(code)
    async with portal_of(tmp_path, middleware=["kept:kept"]) as (portal, _):
        for source, told in (("mail", "not_granted"), ("note", "sent")):
            assert await outcome(portal, f"await {source}.read()\n{SEND}") == told


CRASHES: Json = {"command": "sh", "args": ["-c", "echo secret-of-bob >&2; exit 3"], "call_seconds": 5}
ERRORS = [
    "await {}.read()",
    "await portal.describe('{}.read')",
    "await portal.resources('{}')",
    "await portal.read_resource('x://y', '{}')",
    "await portal.get_prompt('x', upstream='{}')",
]
KEPT = "text = ''\ntry: {}\nexcept ToolError as error: text = str(error)\n"


@OF_SOURCES
async def test_an_error_of_an_upstream_that_is_down_is_its_data_also_after_a_restart(
    tmp_path: Path, source: str, told: str
) -> None:
    peers: Any = {source: CRASHES, "web": Peer(tool("send"))}
    flows: Json = {"flows": [{"from": source if told != "sent" else "web", "not_to": "web"}]}
    manifest: Json = {"capabilities": flows, "runs": RUNS, "server": {"check": "off"}}
    runs = []
    async with opened(tmp_path, peers, **manifest) as portal:
        await portal.search()
        for code in [KEPT.format(use.format(source)) for use in ERRORS]:
            assert "secret-of-bob" in await portal.result_of(f"{code}text")
            assert await outcome(portal, f"{code}{SEND}") == told
            runs.append((await waiting(portal, f"{code}await portal.approve('?')\n{SEND}"))["run_id"])
    async with opened(tmp_path, peers, **manifest) as portal:
        for run in runs:
            await approved(portal, run, until="ok" if told == "sent" else "error")


@OF_SOURCES
async def test_an_error_of_a_call_that_was_not_sent_is_data(tmp_path: Path, source: str, told: str) -> None:
    async with portal_of(tmp_path) as (portal, web):
        await portal.run(f"await {source}.read()")
        portal.portal.fleet[source].remove("as if it had told something")
        assert await outcome(portal, f"{KEPT.format(f'await {source}.read()')}assert text\n{SEND}") == told
        assert len(web.calls) == (told == "sent")


async def test_a_search_tells_scripts_no_words_of_upstreams_and_is_no_data_of_theirs(tmp_path: Path) -> None:
    peers: Any = {"mail": CRASHES, "web": Peer(tool("send"))}
    async with opened(tmp_path, peers, capabilities={"flows": FLOWS}, runs=RUNS) as portal:
        assert "secret-of-bob" in str((await portal.search())["notices"])
        found = await portal.result_of(f"found = await portal.search('send')\n{SEND}\nfound")
    assert "'mail' is down" in str(found["notices"]) and "secret-of-bob" not in str(found)


async def test_a_source_that_the_manifest_has_no_more_counts_as_all(tmp_path: Path) -> None:
    async with portal_of(tmp_path) as (portal, _):
        handles = [await kept(portal, "mail"), await kept(portal, "note")]
    peers = {"post": Peer(tool("read")), "note": Peer(tool("read")), "web": Peer(tool("send"))}
    flows: Json = [{"from": "post", "not_to": "web"}]
    async with opened(tmp_path, peers, runs=RUNS, capabilities={"flows": flows}) as portal:
        found = [await outcome(portal, f"await portal.recall({each!r})\n{SEND}") for each in handles]
    assert found == ["not_granted", "sent"]
