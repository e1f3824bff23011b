"""Scripts through a whole portal: those that cannot run right are refused, those that run right never are."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from portal.check.checker import Checker, open_checker
from portal.check.diagnostic import Diagnostic
from portal.library.stub_package import write_stubs
from sandbox_runtime.guest.script import Script
from sandbox_runtime.prepared import LibraryUse, Prepared
from tests.portal.check.corpus_peers import GRANTS, OFFLINE, corpus_peers
from tests.portal.check.right_scripts import right_scripts
from tests.portal.check.wrong_scripts import NEWER_PYTHON, REFUSED, WARNED, Wrong
from tests.portal.peers import Opened, Peer, opened

pytestmark = pytest.mark.anyio

RIGHT = dict(right_scripts())
WRONG = [*REFUSED, *NEWER_PYTHON]
NEXT_STEP = {"unknown_function": 'docs_search(query="', "invalid_arguments": "async def "}
"""What the hint says at least: a search that is ready to be made, or the function's signature."""


@pytest.fixture(scope="module")
def peers() -> dict[str, Peer]:
    return corpus_peers()


@pytest.fixture(scope="module")
async def portal(peers: dict[str, Peer], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder = tmp_path_factory.mktemp("strict")
    upstreams = {**peers, "offline": OFFLINE}
    server = {"start_seconds": 2}
    async with opened(folder, upstreams, capabilities=GRANTS, server=server) as portal:
        await portal.search()
        yield portal


@pytest.fixture(scope="module")
async def unchecked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    """The same portal, which checks nothing."""
    folder = tmp_path_factory.mktemp("off")
    async with opened(folder, {**corpus_peers()}, capabilities=GRANTS, server={"check": "off"}) as portal:
        yield portal


@pytest.fixture(scope="module")
async def checker(portal: Opened, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Checker]:
    folder: Path = tmp_path_factory.mktemp("stubs")
    library = (await portal.portal.catalog.fresh()).library
    changed = write_stubs(library, folder)
    async with open_checker(folder) as opened:
        await opened.update(library, changed)
        yield opened


async def check(checker: Checker, portal: Opened, text: str) -> Sequence[Diagnostic]:
    snapshot = await portal.portal.catalog.fresh()
    script = Script.parse(text, snapshot.namespaces)
    uses = tuple(LibraryUse(*use) for use in script.uses)
    prepared = Prepared(script.source, script.names, uses, tuple(script.notices))
    return await checker.check(prepared, snapshot)


@pytest.mark.parametrize("wrong", REFUSED, ids=range(len(REFUSED)))
async def test_script_that_cannot_run_right_is_told_why(
    checker: Checker, portal: Opened, wrong: Wrong
) -> None:
    refusing = [each for each in await check(checker, portal, wrong.text) if each.refuses]
    assert [(each.line, each.code) for each in refusing] == [(wrong.line, wrong.code)]
    assert NEXT_STEP.get(wrong.code, "") in refusing[0].hint != ""
    told = f"{refusing[0].message} {refusing[0].hint}"
    assert [word for word in wrong.words if word not in told] == []
    assert len(refusing[0].message) < 300


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
async def test_script_that_cannot_run_right_is_refused_and_calls_nothing(
    portal: Opened, peers: dict[str, Peer], wrong: Wrong
) -> None:
    before = [len(peer.calls) for peer in peers.values()]
    answer = await portal.run(wrong.text)
    assert (answer["status"], answer["error"]["line"]) == ("refused", wrong.line)
    told = f"{answer['error']['message']} {answer['error']['hint']}"
    assert [word for word in wrong.words if word not in told] == []
    assert [len(peer.calls) for peer in peers.values()] == before


@pytest.mark.parametrize("wrong", WARNED, ids=range(len(WARNED)))
async def test_what_only_may_be_wrong_is_a_warning(checker: Checker, portal: Opened, wrong: Wrong) -> None:
    (found,) = await check(checker, portal, wrong.text)
    assert (found.line, found.code, found.refuses) == (wrong.line, wrong.code, False)
    told = f"{found.message} {found.hint}"
    assert [word for word in wrong.words if word not in told] == []


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
async def test_script_that_runs_right_is_never_refused(portal: Opened, unchecked: Opened, text: str) -> None:
    without = await unchecked.run(text)
    assert without["status"] == "ok", "the script is no example: it does not run right"
    answer = await portal.run(text)
    assert (answer["status"], answer["result"]) == ("ok", without["result"])


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    assert len(REFUSED) + len(WARNED) >= 140
    assert len(RIGHT) >= 450
