"""Files that are shared by tenant: who has which token has which files, and no others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.portal.peers import opened
from tests.portal.test_callers import visitor
from tests.portal.test_profiles import bearing, served

TOKENS: Json = [
    {"token": "anna-token", "tenant": "anna"},
    {"token": "annas-other-token", "tenant": "anna"},
    {"token": "annas-reader-token", "tenant": "anna", "profile": "reader"},
    {"token": "bert-token", "tenant": "bert"},
    {"token": "stranger-token", "profile": "nobody"},
]
PROFILES: Json = {"reader": {"files": "read"}, "nobody": {"files": "none"}}
WRITE = 'open("f", "w").write("{}")'
READ = 'open("f").read()'


@asynccontextmanager
async def portal_of(folder: Path, **files: Json) -> AsyncIterator[str]:
    (folder / "data").mkdir(exist_ok=True)
    async with (
        opened(
            folder,
            bound=("reader", "nobody"),
            capabilities={"files": {"workspace": "data", "mode": "write", "share": "tenant", **files}},
            profiles=PROFILES,
            server={"token": "whole-token", "tokens": TOKENS},
        ) as portal,
        served(portal) as url,
    ):
        yield url


async def run_script(url: str, token: str, script: str, mode: str = "auto") -> Json:
    """The result of a script, or the code of its error."""
    async with visitor(url, mode, bearing(f"{token}-token")) as one:
        answer = await one.run(script)
    return answer["result"] if answer["status"] == "ok" else answer["error"]["message"].partition(":")[0]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tokens_of_a_tenant_have_files_together_and_those_of_others_do_not(
    tmp_path: Path, mode: str
) -> None:
    async with portal_of(tmp_path) as url:
        await run_script(url, "anna", WRITE.format("annas"), mode)
        assert await run_script(url, "annas-other", READ, mode) == "annas"
        for other in ("bert", "whole"):
            assert await run_script(url, other, READ, mode) == "FileNotFoundError"
            await run_script(url, other, WRITE.format(other), mode)
        assert await run_script(url, "anna", READ, mode) == "annas"
    kept = {path.parent.name: path.read_text() for path in (tmp_path / "data").glob("*/f")}
    assert kept == {"anna": "annas", "bert": "bert", "_nobody": "whole"}


async def test_files_of_a_tenant_are_there_after_the_portals_end(tmp_path: Path) -> None:
    async with portal_of(tmp_path) as url:
        await run_script(url, "anna", WRITE.format("kept"))
    async with portal_of(tmp_path) as url:
        assert await run_script(url, "anna", READ) == "kept"


async def test_folder_of_a_tenant_that_is_a_link_gives_no_files(tmp_path: Path) -> None:
    """It might lead to the manifest and its secrets."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/anna").symlink_to("..")
    async with portal_of(tmp_path) as url:
        assert await run_script(url, "anna", "import os\nos.listdir()") == "NotADirectoryError"
        assert await run_script(url, "bert", WRITE.format("x")) == 1


async def test_profile_that_reads_only_reads_the_files_of_its_tenant(tmp_path: Path) -> None:
    async with portal_of(tmp_path) as url:
        await run_script(url, "anna", WRITE.format("annas"))
        assert await run_script(url, "annas-reader", READ) == "annas"
        assert await run_script(url, "annas-reader", WRITE.format("x")) == "OSError"
        assert (await run_script(url, "stranger", READ)).startswith("The script did not run")
