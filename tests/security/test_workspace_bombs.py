"""A script that is granted a folder fills neither the disk nor the portal's memory, and delays no one.

Each bomb has a harmless twin that stays below the limit.
"""

import os
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from manifests.grants import FileGrant
from sandbox_runtime.grants.files import FileService
from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.grants.workspace import MAX_LISTED, RESERVED_PREFIX, Workspace
from tests.sandbox_runtime.granted_files import FileRunner, granted
from tests.sandbox_runtime.running import Runner, where
from tests.security.hostile import MOST_SECONDS, RAW_HOST, watched

pytestmark = pytest.mark.anyio

TOTAL_BYTES = 100_000
TOTAL_FILES = 20
FILE_BYTES = 30_000

UNTIL_REFUSED = """
import errno, itertools, os, shutil, sqlite3
told = None
try:
    for n in itertools.count():
        {bomb}
except (OSError, sqlite3.OperationalError) as error:
    told = errno.errorcode[error.errno] if isinstance(error, OSError) else "OperationalError"
print("reached")
[n, told]
"""
CLEARING = """
import shutil, os
for name in os.listdir():
    shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)
open("twin", "w").write("x")
"""
BOMBS: dict[str, tuple[str, int, str]] = {
    "large files": ('f = open(f"f{n}", "wb"); f.write(bytes(30_000)); f.close()', 3, "EDQUOT"),
    "small files": ('open(f"f{n}", "w").close()', 20, "EDQUOT"),
    "folders": ('os.mkdir(f"d{n}")', 20, "EDQUOT"),
    "a file that grows": ('f = open("f", "ab"); f.write(bytes(10_000)); f.close()', 3, "EFBIG"),
    "a sparse file": ('f = open("f", "wb", buffering=0); f.seek(10 ** 12); f.write(b"x")', 0, "EFBIG"),
    "a truncated file": ('open("f", "wb").truncate(10 ** 12)', 0, "EFBIG"),
    "databases": (
        'c = sqlite3.connect(f"f{n}.db"); c.execute("create table t(x)"); '
        'c.execute("insert into t values (zeroblob(10000))"); c.commit()',
        6,
        "OperationalError",
    ),
    "copies": (
        'f = open("f", "wb"); f.write(bytes(20_000)); f.close(); shutil.copy("f", f"g{n}")',
        4,
        "EDQUOT",
    ),
}


@pytest.fixture
async def files(run: Runner, tmp_path: Path) -> AsyncIterator[FileRunner]:
    limits = {"total_bytes": TOTAL_BYTES, "total_files": TOTAL_FILES, "file_bytes": FILE_BYTES}
    async with granted(run, tmp_path, **limits) as files:
        yield files


def size_on_disk(folder: Path) -> tuple[int, int]:
    paths = list(folder.rglob("*"))
    return sum(path.stat().st_size for path in paths if path.is_file()), len(paths)


@pytest.mark.parametrize("name", BOMBS)
async def test_workspace_holds_no_more_than_it_may(files: FileRunner, name: str) -> None:
    bomb, most, told = BOMBS[name]
    result = await files(UNTIL_REFUSED.format(bomb=bomb))
    assert (result.error, result.stdout) == (None, "reached\n")
    assert result.value == [most, told]
    used_bytes, used_files = size_on_disk(files.folder)
    assert used_bytes <= TOTAL_BYTES and used_files <= TOTAL_FILES
    assert await files.value(CLEARING) == 1


async def test_file_that_is_too_large_costs_no_memory_to_refuse(files: FileRunner) -> None:
    with (files.folder / "sparse").open("wb") as file:
        file.truncate(10**12)
    async with watched() as delay:
        assert "file_bytes" in await files.error('open("sparse").read()')
    assert delay.seconds < MOST_SECONDS
    assert await files.value('import os\nos.path.getsize("sparse")') == 10**12


async def test_folder_of_too_many_files_is_not_listed(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "0").touch()
    for number in range(1, MAX_LISTED):
        os.link(tmp_path / "0", f"{tmp_path}/{number}")  # which costs less than a file
    async with granted(run, tmp_path, mode="read") as files:
        assert len(await files.value("import os\nos.listdir()")) == MAX_LISTED
        (tmp_path / "one more").touch()
        async with watched() as delay:
            assert "more than 10,000 entries" in await files.error("import os\nos.listdir()")
    assert delay.seconds < MOST_SECONDS


@pytest.mark.parametrize("size", [FILE_BYTES + 1, 10 * FILE_BYTES])
async def test_forged_write_of_too_much_is_refused_by_the_host(files: FileRunner, size: int) -> None:
    forged = (
        RAW_HOST
        + f"import base64, json\ndef write(size):\n    data = base64.b64encode(bytes(size)).decode()\n"
        '    line = json.dumps({"path": "f", "base64": data})\n    write.n += 1\n'
        '    return json.loads(host.exchange(f"{write.n} portal.files.write {line}", -1))[0][1:3]\nwrite.n = 0\n'
        f'[write({size})[:2], write({FILE_BYTES})[0], print("reached")]'
    )
    result = await files(forged)
    assert (result.error, result.value, result.stdout) == (None, [[0, "EFBIG"], 1, None], "reached\n")


async def test_forged_write_beyond_every_bound_ends_the_run_and_nothing_else(files: FileRunner) -> None:
    forged = RAW_HOST + 'print("reached")\nhost.exchange("1 portal.files.write " + "x" * 50_000_000, -1)'
    async with watched() as delay:
        result = await files(forged)
    assert (result.error.code, result.stdout) == ("argument_limit", "reached\n")
    assert delay.seconds < MOST_SECONDS
    assert await files.value('open("f", "w").write("x")') == 1


@asynccontextmanager
async def on_a_disk_that_hangs(files: FileRunner) -> AsyncIterator[RunGrants]:
    """No operation of a run with these ends before this does."""
    answering = threading.Event()

    def open_late() -> Workspace:
        answering.wait()
        return Workspace(files.folder, None, FILE_BYTES, "file_bytes")

    grant = FileGrant(workspace=str(files.folder), mode="write")
    try:
        yield RunGrants(files=FileService(grant, open_late, where, ThreadPoolExecutor(1)))
    finally:
        answering.set()


async def test_writes_that_nobody_waits_for_are_not_kept_by_the_hundred(files: FileRunner) -> None:
    """The portal would hold them all until their turn comes, and the first one's disk does not answer."""
    forged = (
        "print('reached')\nline = 'portal.files.write {\"path\": \"' + 'x' * 960_000 + '\"}'\n"
        "for i in range(1, 999): host.exchange(f'{i} {line}', 0)"
    )
    async with on_a_disk_that_hangs(files) as grants:
        result = await files.run(RAW_HOST + forged, grants=grants)
    assert (result.error.code, result.stdout) == ("worker_lost", "reached\n")
    assert await files.value('open("f", "w").write("x")') == 1


async def test_flood_of_refused_operations_ends_the_run(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit of refusals, which is set low here: ten thousand round trips take seconds."""
    monkeypatch.setattr("sandbox_runtime.admission.MAX_REFUSED", 50)
    flood = (
        "print('reached')\nn = 0\nwhile True:\n    n += 1\n"
        '    host.exchange(str(n) + \' portal.files.stat {"path": "x"}\', -1)'
    )
    async with granted(run, tmp_path, operations=10) as files:
        result = await files(RAW_HOST + flood)
        assert (result.error.code, result.stdout) == ("tool_calls_limit", "reached\n")
        assert await files.value("import os\nos.listdir()") == []


async def test_what_a_killed_portal_was_writing_is_removed_and_nothing_else(files: FileRunner) -> None:
    old, new = files.folder / f"{RESERVED_PREFIX}old.partial", files.folder / f"{RESERVED_PREFIX}new.partial"
    old.write_text("x")
    new.write_text("x")
    os.utime(old, (time.time() - 10_000,) * 2)
    assert await files.value('import os\nopen("f", "w").write("x")\nos.listdir()') == ["f"]
    assert (old.exists(), new.exists()) == (False, True)
