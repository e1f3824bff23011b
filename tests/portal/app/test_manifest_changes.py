"""Signals, and files that changed or were accepted, lead to a reload: few of them, the last one wins, and a wrong
manifest is told. Without `reload: watch` a change waits.
"""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from manifests.loader import load_manifest, read_files
from manifests.manifest import Manifest
from manifests.own_files import lock_text
from portal.app import hang_ups, reload
from portal.app.accepted import Acceptance, choose_files, note_start
from portal.app.reload import ManifestKeeper
from tests.portal.peers import DEADLINE_SECONDS

TEXT = "profiles: {%s: {}}\nserver: {reload: watch}\n"


class Applied:
    """The manifests that took effect, by the name of their profile, and the log. `may_end` holds the next one up."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.may_end = anyio.Event()
        self.may_end.set()
        self.changed = anyio.Event()
        self.signalled = anyio.Event()
        self.waiting: list[str] = []
        self.events: list[Any] = []

    async def __call__(self, manifest: Manifest) -> Manifest:
        self.names.append("".join(manifest.portal.profiles))
        self.changed.set()
        self.changed = anyio.Event()
        await self.may_end.wait()
        return manifest

    async def until(self, name: str) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while name not in self.names:
                await self.changed.wait()

    async def logged(self, *names: str) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while [each["event"] for each in self.events] != [*names]:  # noqa: ASYNC110  # a log has no event
                await anyio.sleep(0.01)


@asynccontextmanager
async def kept(path: Path) -> AsyncIterator[Applied]:
    applied = Applied()
    keeper = ManifestKeeper(load_manifest(path, {}), applied, lambda hashes: None, applied.waiting)
    applied.signalled = keeper._signalled
    async with anyio.create_task_group() as tasks:
        with capture_logs() as applied.events:
            await tasks.start(keeper.keep, anyio.CancelScope())
            yield applied
        tasks.cancel_scope.cancel()


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(reload, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(reload, "SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(hang_ups, "has_terminal", lambda: False)
    path = tmp_path / "portal.yaml"
    write(path, TEXT % "first")
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def hang_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


async def test_storm_of_signals_leads_to_few_reloads_and_the_last_manifest_wins(manifest: Path) -> None:
    async with kept(manifest) as applied:
        applied.may_end = anyio.Event()
        hang_up()
        await applied.until("first")
        for number in range(100):
            write(manifest, TEXT % f"storm_{number}")
            hang_up()
            await anyio.lowlevel.checkpoint()
        applied.may_end.set()
        await applied.until("storm_99")
        write(manifest, TEXT % "later")
        await applied.until("later")
    assert applied.names in (["first", "storm_99", "later"], ["first", "storm_99", "storm_99", "later"])


@pytest.mark.parametrize(("name", "text"), [("portal.env", "A=b\n"), ("portal.lock", lock_text(()))])
async def test_file_beside_the_manifest_counts_too(manifest: Path, name: str, text: str) -> None:
    async with kept(manifest) as applied:
        write(manifest.with_name(name), text)
        await applied.until("first")


async def test_file_that_is_being_written_at_a_signal_is_awaited(
    manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "SETTLE_SECONDS", 1.5)
    async with kept(manifest) as applied:
        write(manifest, "")
        hang_up()
        await applied.signalled.wait()
        await anyio.sleep(0.1)  # files settle for longer, and timers end in their order
        write(manifest, TEXT % "whole")
        await applied.until("whole")
    assert applied.names == ["whole"]


async def test_link_that_leads_elsewhere_reloads(tmp_path: Path, manifest: Path) -> None:
    """Update it like a ConfigMap of Kubernetes: the file is a link through a folder that is a link."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "linked.yaml").write_text(TEXT % name)
    data, new, path = tmp_path / "..data", tmp_path / "..new", tmp_path / "linked.yaml"
    data.symlink_to("one")
    path.symlink_to("..data/linked.yaml")
    async with kept(path) as applied:
        new.symlink_to("two")
        new.replace(data)
        await applied.until("two")


@pytest.mark.parametrize(
    ("text", "reason"), [("upstreams: {up: {comand: x}}\n", "portal.yaml:1:17: "), (None, "cannot be read")]
)
async def test_wrong_or_deleted_manifest_is_told_and_the_next_one_counts(
    manifest: Path, text: str | None, reason: str
) -> None:
    async with kept(manifest) as applied:
        write(manifest, text) if text else os.unlink(manifest)
        await applied.logged("manifest_rejected")
        assert reason in applied.events[0]["reason"] and not applied.names
        write(manifest, TEXT % "second")
        await applied.until("second")


ASKING = "profiles: {%s: {}}\n"


@pytest.fixture
def asking(manifest: Path) -> Path:
    """A manifest without `reload: watch`, which a portal accepted."""
    write(manifest, ASKING % "first")
    note_start(*choose_files(manifest))
    return manifest


async def test_change_waits_is_told_once_and_is_applied_as_it_was_accepted(asking: Path) -> None:
    async with kept(asking) as applied:
        write(asking, ASKING % "second")
        await applied.logged("manifest_change_waits")
        shown = read_files(asking, {})
        write(asking, ASKING % "second")
        write(asking, ASKING % "third")
        await applied.logged(*["manifest_change_waits"] * 2)
        Acceptance(asking).accept(shown)
        await applied.until("second")
        await applied.logged(*["manifest_change_waits"] * 3)
        assert applied.names == ["second"]


async def accepted_in_vain(asking: Path, applied: Applied, command: str) -> None:
    """Return once a change was accepted that has a command, which failed."""
    entry = f"{{command: x, env: {{K: '${{command:{command}}}'}}}}"
    write(asking, f"{ASKING % 'second'}upstreams: {{up: {entry}}}\n")
    await applied.logged("manifest_change_waits")
    assert not asking.with_name("ran").exists(), "no command runs before it is accepted"
    Acceptance(asking).accept(read_files(asking, {}))
    await applied.logged("manifest_change_waits", "manifest_rejected")


async def test_accepted_change_that_cannot_be_applied_is_rejected_once_and_waits_until_it_is_taken_back(
    asking: Path,
) -> None:
    accepted = read_files(asking, {})
    async with kept(asking) as applied:
        await accepted_in_vain(asking, applied, "touch ran no/folder")
        assert asking.with_name("ran").exists()
        write(asking, ASKING % "first")
        await applied.logged("manifest_change_waits", "manifest_rejected", "manifest_change_waits")
        Acceptance(asking).accept(accepted)
        await applied.logged(
            *("manifest_change_waits", "manifest_rejected", "manifest_change_waits"),
            "manifest_change_withdrawn",
        )
    assert applied.waiting == [] and applied.names == []


async def test_accepted_change_that_could_not_be_applied_waits_until_it_is_accepted_again(
    asking: Path,
) -> None:
    """Nothing in the files changes in between: a command of theirs had failed."""
    async with kept(asking) as applied:
        await accepted_in_vain(asking, applied, "ls vault")
        files = read_files(asking, {})
        assert applied.waiting == ["portal.yaml"]
        (asking.with_name("vault") / "secret").mkdir(parents=True)
        assert read_files(asking, {}) == files
        Acceptance(asking).accept(files)
        with anyio.fail_after(DEADLINE_SECONDS):
            while applied.waiting:  # noqa: ASYNC110  # a list has no event
                await anyio.sleep(0.01)
        assert applied.names == ["second"]


async def test_change_that_is_taken_back_waits_no_more(asking: Path) -> None:
    async with kept(asking) as applied:
        write(asking, ASKING % "second")
        await applied.logged("manifest_change_waits")
        write(asking, ASKING % "first")
        await applied.logged("manifest_change_waits", "manifest_change_withdrawn")
        assert not applied.names


@pytest.mark.parametrize(("text", "mode"), [("upstreams: [", 0o600), ("A=b\n", 0o644)])
async def test_broken_or_open_file_is_told_and_changes_nothing(asking: Path, text: str, mode: int) -> None:
    file = asking if text.startswith("up") else asking.with_name("portal.env")
    async with kept(asking) as applied:
        file.write_text(text)
        file.chmod(mode)
        await applied.logged("manifest_rejected")
        assert not applied.names


async def test_decision_is_not_for_what_comes_after_a_file_that_could_not_be_read(
    asking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: object) -> None:
        raise OSError("away")

    async with kept(asking) as applied:
        with monkeypatch.context() as patch:
            patch.setattr(reload, "read_files", unread)
            applied.signalled.set()
            await applied.logged("manifest_rejected")
        write(asking, ASKING % "third")
        await applied.logged("manifest_rejected", "manifest_change_waits")
        assert not applied.names


async def test_defect_in_a_reload_ends_no_portal(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> Manifest:
        raise RuntimeError("a defect")

    async with kept(manifest) as applied:
        with monkeypatch.context() as patch:
            patch.setattr(Applied, "__call__", fail)
            write(manifest, TEXT % "second")
            await applied.logged("manifest_rejected")
        write(manifest, TEXT % "third")
        await applied.until("third")


@pytest.mark.parametrize("terminal", [0, 1, 2])
def test_any_standard_stream_may_be_the_terminal(monkeypatch: pytest.MonkeyPatch, terminal: int) -> None:
    monkeypatch.setattr(os, "isatty", lambda number: number == terminal)
    assert hang_ups.has_terminal()


async def test_file_that_never_rests_holds_up_nothing_that_was_accepted(manifest: Path) -> None:
    write(manifest, TEXT % "accepted")
    files = read_files(manifest, {})
    write(manifest, TEXT % "first")

    async def rewrite() -> None:
        for number in range(10_000):
            write(manifest, TEXT % f"written_{number}")
            await anyio.sleep(0.01)

    async with kept(manifest) as applied, anyio.create_task_group() as tasks:
        tasks.start_soon(rewrite)
        hang_up()  # it waits for files that rest
        await anyio.lowlevel.checkpoint()
        Acceptance(manifest).accept(files)
        await applied.until("accepted")
        tasks.cancel_scope.cancel()
