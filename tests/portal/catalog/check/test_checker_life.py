"""How the checker lives: changing stubs, many askers, a type checker that dies or hangs, and its end."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import anyio
import pytest

from portal.catalog.check import language_server
from portal.catalog.check.checker import Checker, open_checker
from portal.catalog.check.language_server import TypeChecker
from portal.catalog.check.ty_server import TyServer
from portal.library.library import Library
from tests.portal.catalog.check.small_library import TEXT, library, prepared, snapshot, stubs, tool

LIBRARY = library()
# Only ty sees what is wrong here: a field that a result does not declare.
TYPED = "r = await github.get_issue(number=1)\nr['nme']"


@pytest.fixture
async def checker(tmp_path: Path) -> AsyncIterator[Checker]:
    async with open_checker(tmp_path) as opened:
        await opened.update(LIBRARY, opened.write(LIBRARY))
        yield opened


async def codes(checker: Checker, text: str, of: Library = LIBRARY) -> list[str]:
    return [diagnostic.code for diagnostic in await checker.check(prepared(text, of), snapshot(of))]


def process_of(checker: Checker) -> int:
    """The process that the checker talks to now."""
    server = checker._types._server
    assert server is not None
    return server._process.pid


def freeze(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


async def test_changed_stubs_are_seen(checker: Checker) -> None:
    text = "r = await github.find()\nr['number'], r['nme']"
    assert await codes(checker, TYPED) == ["unknown_field"]
    larger = library(
        tool("find", TEXT, {"type": "object", "properties": {"number": {}}, "required": ["number"]})
    )
    await checker.update(larger, checker.write(larger))
    assert len(await codes(checker, text, larger)) == 2  # `text` is missing, `nme` unknown
    await checker.update(LIBRARY, checker.write(LIBRARY))
    assert await codes(checker, TYPED) == ["unknown_field"]


async def test_many_may_ask_at_once(checker: Checker) -> None:
    answers: dict[int, list[str]] = {}

    async def ask(number: int) -> None:
        wrong = number % 2
        answers[number] = await codes(
            checker, f"r = await github.get_issue(number=1)\nr['{'nme' if wrong else 'title'}'], {number}"
        )

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(ask, number)
    assert answers == {number: ["unknown_field"] * (number % 2) for number in range(20)}


async def test_death_of_the_type_checker_is_not_noticed(checker: Checker) -> None:
    await codes(checker, TYPED)
    former = process_of(checker)
    os.kill(former, signal.SIGKILL)
    assert await codes(checker, TYPED + "\n1") == ["unknown_field"]
    assert process_of(checker) != former


async def test_hanging_type_checker_is_a_warning(checker: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    await codes(checker, TYPED)
    monkeypatch.setattr(language_server, "ANSWER_SECONDS", 0.2)
    freeze(process_of(checker))
    assert await codes(checker, TYPED + "\n1") == ["unchecked"]
    monkeypatch.undo()
    assert await codes(checker, TYPED + "\n1") == ["unknown_field"]


async def test_type_checker_ends_when_no_script_has_used_it_and_starts_for_the_next(checker: Checker) -> None:
    await checker._types.end_if_unused()
    await codes(checker, TYPED)
    await checker._types.end_if_unused()
    used = process_of(checker)
    os.kill(used, 0)
    await checker._types.end_if_unused()
    with pytest.raises(ProcessLookupError):
        os.kill(used, 0)
    assert await codes(checker, TYPED + "\n1") == ["unknown_field"]


async def test_stubs_that_are_gone_are_written_for_the_next_type_checker(
    checker: Checker, tmp_path: Path
) -> None:
    await codes(checker, TYPED)
    shutil.rmtree(tmp_path)
    await checker._types.end()
    assert await codes(checker, TYPED + "\n1") == ["unknown_field"]
    (tmp_path / "tools" / "github.pyi").unlink()
    await checker._types.end()
    assert await codes(checker, TYPED + "\n2") == ["unknown_field"]
    assert os.stat(tmp_path).st_mode & 0o777 == 0o700
    os.chmod(tmp_path, 0o777)  # as that of another user who was faster
    await checker._types.end()
    assert await codes(checker, TYPED + "\n3") == ["unchecked"]
    os.rename(tmp_path, own := tmp_path.with_name("own"))
    os.chmod(own, 0o700)
    os.symlink(own, tmp_path)
    checker._types._retry_at = 0
    assert await codes(checker, TYPED + "\n4") == ["unchecked"]


async def test_types_are_not_checked_by_stubs_of_another_library(checker: Checker) -> None:
    await checker.update(LIBRARY, None)
    assert await codes(checker, TYPED) == ["unchecked"]


async def test_arguments_are_checked_without_ty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.catalog.check.ty_server.find_ty_bin", lambda: str(tmp_path / "nothing"))
    script = prepared("await echo.say(text=[1])", LIBRARY)
    found = await Checker(TypeChecker(tmp_path, TyServer)).check(script, snapshot(LIBRARY))
    assert [(diagnostic.code, diagnostic.refuses) for diagnostic in found] == [
        ("invalid_arguments", True),
        ("unchecked", False),
    ]


ENDLESS = "import sys; print('Content-Length: 100000000', end='\\r\\n\\r\\n', flush=True); sys.stdin.read()"


class EndlessServer(TyServer):
    """Announces a message of 100 MB and sends none of it."""

    starts = 0

    @classmethod
    async def start(cls, folder: Path) -> Self:
        cls.starts += 1
        return cls(await anyio.open_process([sys.executable, "-c", ENDLESS]), folder)


async def test_type_checker_that_announces_too_long_a_message_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_server, "ANSWER_SECONDS", 10)
    assert await TypeChecker(tmp_path, EndlessServer).findings([], "1") is None
    assert EndlessServer.starts == 2


async def test_no_script_breaks_the_checker(checker: Checker) -> None:
    for text in ("[" * 150 + "]" * 150, "x" + ".y" * 150, "'" + "\u202e😀" * 1_000 + "'"):
        script = prepared(f"github.get_issue\n{text}", LIBRARY)
        assert "unchecked" not in [each.code for each in await checker.check(script, snapshot(LIBRARY))]
    assert await codes(checker, TYPED) == ["unknown_field"]


PORTAL = """
import anyio, sys
from pathlib import Path
from portal.catalog.check.checker import open_checker

async def main():
    async with open_checker(Path(sys.argv[1])) as checker:
        await checker._types.findings([], "1")
        print(checker._types._server._process.pid, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_type_checker_ends_with_a_portal_that_is_killed(tmp_path: Path) -> None:
    stubs(tmp_path, LIBRARY)
    command = [sys.executable, "-c", PORTAL, str(tmp_path)]
    root = str(Path(__file__).parents[4])
    async with await anyio.open_process(
        command, env={**os.environ, "PYTHONPATH": root}, stderr=subprocess.DEVNULL
    ) as portal:
        assert portal.stdout is not None
        pid = int(await portal.stdout.receive())
        watched = os.pidfd_open(pid)
        portal.kill()
        with anyio.fail_after(10):
            await anyio.wait_readable(watched)  # when the process has ended
        os.close(watched)
