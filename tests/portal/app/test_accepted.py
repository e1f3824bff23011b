"""Accepted files stay in effect, later changes wait, and portals of one user find each other."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from manifests.loader import load_manifest, parse_manifest, read_files
from manifests.own_files import UNFINISHED, state_folder
from portal.app.accepted import Acceptance, choose_files, keep_accepted, note_start
from portal.app.running import RunningPortal, announced, running_portals
from portal.cli.terminal import shell_command
from portal.records.store.places import place_of, present

pytestmark = pytest.mark.usefixtures("own_state")

SECOND = "profiles: {second: {}}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    path = tmp_path / "here" / "portal.yaml"
    path.write_text("profiles: {first: {}}\n")
    return path


@pytest.fixture
def after_a_run(path: Path) -> Iterator[Path]:
    """A manifest that a portal accepted, which has ended in order."""
    note_start(*choose_files(path))
    yield path


def kill_portal_of(path: Path) -> None:
    """Leave the state folder as a portal does that runs, and is killed."""
    Acceptance(path).hold()


def waiting(path: Path) -> tuple[str, ...]:
    return choose_files(path)[1]


def test_first_start_and_a_change_while_nothing_ran_apply_and_are_logged(after_a_run: Path) -> None:
    after_a_run.write_text(SECOND)
    with capture_logs() as events:
        note_start(*choose_files(after_a_run))
    assert [(each["event"], each["why"]) for each in events] == [("manifest_accepted", "changed")]
    after_a_run.write_text("profiles: {third: {}}\n")
    with announced(RunningPortal(os.getpid(), str(after_a_run.with_name("other.yaml")))):
        assert not waiting(after_a_run)


def test_added_file_that_others_can_read_is_a_change(after_a_run: Path) -> None:
    kill_portal_of(after_a_run)
    after_a_run.with_name("portal.env").touch(0o644)
    assert waiting(after_a_run)


@pytest.mark.parametrize("target", [None, "portal.yaml", "portal.env", "x" * 300])
@pytest.mark.parametrize("name", ["portal.yaml", "portal.env"])
def test_file_that_is_gone_or_a_link_to_nowhere_is_a_change(
    after_a_run: Path, name: str, target: str | None
) -> None:
    beside = after_a_run.with_name(name)
    beside.touch(0o600)
    keep_accepted(read_files(after_a_run, {}))
    beside.unlink()
    if target:
        beside.symlink_to(target)
    kill_portal_of(after_a_run)
    files, waiting = choose_files(after_a_run)
    manifest = parse_manifest(files, {})
    assert waiting == (name,)
    assert manifest.portal.profiles
    assert "--config" in shell_command(manifest, "check")
    with present(place_of(manifest)) as holder:
        assert holder


def test_end_in_a_folder_that_is_gone_is_one(after_a_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(after_a_run.parent)
    acceptance = Acceptance(Path("portal.yaml"))
    acceptance.hold()
    shutil.rmtree(after_a_run.parent)
    acceptance.release()
    assert acceptance.is_held


@pytest.mark.parametrize("what", ["file", "folder"])
def test_link_that_leads_elsewhere_now_is_a_change(path: Path, tmp_path: Path, what: str) -> None:
    """A script that may not write the file may replace the link to it."""
    evil = tmp_path / "evil" / "portal.yaml"
    evil.parent.mkdir()
    evil.write_text(SECOND)
    link = tmp_path / "link"
    link.symlink_to(path if what == "file" else path.parent)
    way = link if what == "file" else link / "portal.yaml"
    note_start(*choose_files(way))
    link.unlink()
    link.symlink_to(evil if what == "file" else evil.parent)
    kill_portal_of(way)
    assert waiting(way)


def test_link_to_a_manifest_shares_what_was_accepted_under_its_own_names(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "other.yaml"
    link.symlink_to(path)
    for each in (link.with_suffix(".env"), path.with_suffix(".env")):
        each.touch(0o600)
    note_start(*choose_files(link))
    assert not waiting(path)
    path.write_text(SECOND)
    with announced(RunningPortal(os.getpid(), str(link))):
        assert (waiting(link), waiting(path)) == (("other.yaml",), ("portal.yaml",))
    assert not waiting(path)


def test_middleware_and_the_component_are_accepted_too(path: Path) -> None:
    (path.parent / "hooks").mkdir()
    for name in ("guard.py", "hooks/__init__.py", "hooks/mask.py", "sandbox.wasm"):
        (path.parent / name).write_text(f"# {name}")
    path.write_text("middleware: ['guard:f', 'hooks.mask:g']\nserver: {component: sandbox.wasm}\n")
    note_start(*choose_files(path))
    kill_portal_of(path)
    (path.parent / "hooks/mask.py").write_text("evil")
    (path.parent / "sandbox.wasm").write_text("evil")
    assert waiting(path) == ("hooks/mask.py", "sandbox.wasm")
    manifest = Acceptance(path).with_copies(load_manifest(path, {}))
    assert manifest.portal.server.component == "sandbox.wasm", "of what is not accepted there is no copy"
    (path.parent / "sandbox.wasm").write_text("# sandbox.wasm")
    manifest = Acceptance(path).with_copies(load_manifest(path, {}))
    assert Path(manifest.portal.server.component or "").read_text() == "# sandbox.wasm"


def test_copies_are_readable_by_their_owner_only_and_old_ones_are_removed(after_a_run: Path) -> None:
    after_a_run.with_name("portal.env").touch(0o600)
    after_a_run.write_text(SECOND)
    folder = Acceptance(after_a_run).folder
    keep_accepted(read_files(after_a_run, {}))
    assert not folder.stat().st_mode & 0o077
    copies = [each for each in folder.iterdir() if len(each.name) == 64]
    assert len(copies) == 2
    assert not any(each.stat().st_mode & 0o077 for each in copies)


def test_state_folder_that_cannot_be_written_is_logged_files_apply_and_the_portal_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with capture_logs() as events:
        note_start(*choose_files(path))
    assert [each["event"] for each in events if each["log_level"] == "warning"] == ["accepted_files_not_kept"]
    assert not waiting(path)
    with announced(RunningPortal(os.getpid())):
        assert running_portals() == []


def test_damaged_copy_is_not_used(after_a_run: Path) -> None:
    for copy in state_folder(os.environ).rglob("?" * 64):
        copy.write_text("profiles: {evil: {}}\n")
    assert Acceptance(after_a_run).files() is None


def test_portal_is_found_while_it_runs_with_the_files_on_which_it_runs() -> None:
    portal = RunningPortal(
        os.getpid(), "/here/portal.yaml", "127.0.0.1", 8080, hashes={"portal.yaml": "long"}
    )
    with announced(portal) as announce:
        assert running_portals() == [portal]
        announce({"a": "b"})
        assert [each.hashes for each in running_portals()] == [{"a": "b"}]
    assert running_portals() == []


def test_file_of_a_portal_that_starts_is_nobody_elses(tmp_path: Path) -> None:
    folder = tmp_path / "state/mcp-code-portal/portals"
    folder.mkdir(parents=True)
    (folder / f"{UNFINISHED}{os.getpid()}-x.json").write_text("{}")
    assert running_portals() == []
    assert [*folder.iterdir()] != []
