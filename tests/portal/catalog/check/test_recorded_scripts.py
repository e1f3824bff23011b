"""Scripts for the tools of real servers, as recorded; the recordings are kept beside the repository.

Each of `recorded_scripts/right.txt` ran right through a portal that checked nothing, over stand-ins for those servers,
and each of `wrong.txt` failed. A line `%%` stands between two scripts, `----` between two runs of one session.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.registries import REGISTRIES, read_sources
from portal.catalog.check.checker import Checker, open_checker
from portal.catalog.check.diagnostics import Diagnostic
from portal.library.library import Library
from tests.portal.catalog.check.small_library import prepared, snapshot

pytestmark = [
    pytest.mark.skipif(not REGISTRIES.exists(), reason="the recordings are kept beside the repository"),
]

SERVERS = {
    "live-mcp_atlassian": "jira",
    "live-mcp_server_time": "clock",
    "live-modelcontextprotocol_server-filesystem": "files",
    "live-modelcontextprotocol_server-memory": "memory",
    "mcpm-github": "github",
    "mcpm-slack": "slack",
    "smithery-cf_0003.smithery_notion": "notion",
}
SCRIPTS = Path(__file__).parent / "recorded_scripts"


def scripts(name: str) -> list[str]:
    return (SCRIPTS / name).read_text("utf-8").removesuffix("\n").split("\n%%\n")


@pytest.fixture(scope="module")
def library() -> Library:
    return Library.compile(
        replace(each, namespace=SERVERS[each.upstream])
        for each in read_sources(REGISTRIES)
        if each.upstream in SERVERS
    )


@pytest.fixture(scope="module")
async def checker(library: Library, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Checker]:
    folder = tmp_path_factory.mktemp("stubs")
    async with open_checker(folder) as opened:
        await opened.update(library, opened.write(library))
        yield opened


async def refusals(checker: Checker, library: Library, text: str) -> Sequence[Diagnostic]:
    """The problems that refuse the last run of a session."""
    *before, last = text.split("\n----\n")
    found = await checker.check(prepared(last, library, *before), snapshot(library))
    return [each for each in found if each.refuses]


async def test_none_that_ran_right_is_refused(checker: Checker, library: Library) -> None:
    refused = {text: await refusals(checker, library, text) for text in scripts("right.txt")}
    assert {text: found for text, found in refused.items() if found} == {}


async def test_each_that_failed_is_refused(checker: Checker, library: Library) -> None:
    assert [text for text in scripts("wrong.txt") if not await refusals(checker, library, text)] == []
