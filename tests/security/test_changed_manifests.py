"""A script that rewrites portal.yaml through a tool decides nothing: not by itself, and not by what the operator does
next. The harmless twin: what a person accepted takes effect, exactly as it was shown.
"""

import importlib.util
import os
import py_compile
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
import yaml

from manifests.errors import ManifestError
from manifests.loader import parse_manifest, read_files
from manifests.own_files import HEADER, ManifestFiles
from portal.app.accepted import Acceptance, choose_files, note_start
from portal.app.accepted import running as serving
from portal.app.reload import upstream_settings
from portal.app.running import RunningPortal, announced
from portal.base.errors import PortalError
from portal.cli.reload import difference
from portal.cli.terminal import Terminal
from portal.middleware import load_middleware
from tests.portal.commands import PortalCommand
from tests.portal.peers import raw, raw_tools
from upstreams.secret_sources import fetch_secrets, header_renewals

pytestmark = pytest.mark.usefixtures("own_state")

SAFE, EVIL = "profiles: {first: {}}\n", "profiles: {evil: {}}\n"
ATTACK = "upstreams:\n  x: {command: touch, args: [started], env: {K: '${command:touch run}'}}\n"
MIDDLEWARE = "async def guard(call, next):\n    return {}\n"
End: TypeAlias = Callable[[ExitStack], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "portal.yaml"
    path.write_text(SAFE)
    return path


@pytest.fixture
def running(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The manifest of a portal that runs, and that no command waits for."""
    monkeypatch.setattr("portal.cli.reload.ANSWER_SECONDS", 0)
    note_start(*choose_files(path))
    with announced(RunningPortal(os.getpid(), str(path))):
        yield path


@pytest.mark.parametrize(
    "command", ["check", "search x", "stubs", "explain x", "lock", "login x", "runs", "run -"]
)
def test_no_command_starts_what_a_script_wrote(portal: PortalCommand, running: Path, command: str) -> None:
    running.write_text(ATTACK)
    done = portal(*command.split(), cwd=running.parent, stdin="1")
    assert "mcp-code-portal reload" in done.stderr
    assert {each.name for each in running.parent.iterdir()} <= {"portal.yaml", "portal.lock", "state"}


@pytest.mark.parametrize("is_running", [True, False])
def test_manifest_that_is_gone_is_not_empty(portal: PortalCommand, tmp_path: Path, is_running: bool) -> None:
    path = tmp_path / "portal.yaml"
    assert "no upstreams are configured" in portal("explain", "x", cwd=tmp_path).stderr, "there never was one"
    path.write_text(SAFE)
    note_start(*choose_files(path))
    if is_running:
        Acceptance(path).hold()
    path.unlink()
    done = portal("explain", "x", cwd=tmp_path)
    assert ("a change of portal.yaml waits" in done.stderr) is is_running
    assert ("cannot be read" in done.stderr) is not is_running


def test_check_says_that_a_change_waits_and_may_check_it(portal: PortalCommand, running: Path) -> None:
    running.write_text(ATTACK)
    done = portal("check", "--strict", cwd=running.parent)
    assert done.returncode == 3
    assert "a change of portal.yaml waits" in done.stdout
    portal("check", "--waiting", cwd=running.parent)
    assert (running.parent / "run").exists()
    assert portal("check", "--strict", cwd=running.parent).returncode == 3, "a check accepts nothing"


def has_secrets(manifest: Path, text: str) -> None:
    file = manifest.with_name("portal.env")
    file.touch(0o600)
    file.write_text(text)


def test_reload_needs_a_person_or_yes(portal: PortalCommand, running: Path) -> None:
    running.write_text(ATTACK)
    before = Acceptance(running).hashes()
    assert portal("reload", cwd=running.parent).returncode == 2
    assert Acceptance(running).hashes() == before
    assert not (running.parent / "run").exists()


def test_reload_accepts_the_bytes_that_it_showed(
    portal: PortalCommand, running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def swapped(terminal: Terminal, question: str) -> bool:
        await anyio.Path(running).write_text(ATTACK)
        return True

    monkeypatch.setattr(Terminal, "is_confirmed", swapped)
    running.write_text("profiles: {shown: {}}\n")
    done = portal("reload", cwd=running.parent)
    assert "+profiles: {shown: {}}" in done.stdout
    accepted = Acceptance(running).files()
    assert accepted is not None
    assert accepted.contents["portal.yaml"] == b"profiles: {shown: {}}\n"
    assert choose_files(running)[1] == ("portal.yaml",)


@pytest.mark.parametrize("text", ["upstreams: [", "unknown: 1"])
def test_reload_refuses_what_is_broken(portal: PortalCommand, running: Path, text: str) -> None:
    running.write_text(text)
    before = Acceptance(running).hashes()
    assert portal("reload", "--yes", cwd=running.parent).returncode == 2
    assert Acceptance(running).hashes() == before


def test_reload_shows_no_secret_and_controls_no_terminal(portal: PortalCommand, running: Path) -> None:
    has_secrets(running, "TOKEN=very-secret-value\n")
    running.write_text("profiles: {first: {}} # \u202e\n")
    done = portal("reload", cwd=running.parent)
    assert "portal.env: other values of TOKEN" in done.stdout
    assert "very-secret-value" not in done.stdout + done.stderr
    assert "\u202e" not in done.stdout


@pytest.mark.parametrize(("value", "is_told"), [("former-secret", True), ("latest-secret", False)])
def test_reload_says_that_the_environment_wins(
    portal: PortalCommand, running: Path, monkeypatch: pytest.MonkeyPatch, value: str, is_told: bool
) -> None:
    has_secrets(running, "TOKEN=latest-secret\n")
    monkeypatch.setenv("TOKEN", value)
    said = portal("reload", cwd=running.parent).stderr
    assert ("the environment wins" in said, "secret" in said) == (is_told, False)


@pytest.mark.parametrize(
    "changed",
    [b"a\xe2\x80\xa8b\n", b"a\x0bb\n", b"a\xc2\x85b\n", b"a\r\nb\n", b"a\rb\n", b"a\nb", b"a\nb\xfe\n"],
)
@pytest.mark.parametrize("name", ["portal.yaml", "guard.py"])
def test_difference_shows_every_byte_that_differs(tmp_path: Path, name: str, changed: bytes) -> None:
    old, new = (ManifestFiles(tmp_path / "portal.yaml", {name: each}) for each in (b"a\nb\n", changed))
    assert len([*difference(old, new)]) > 3


def test_difference_without_a_line_shows_hashes(tmp_path: Path) -> None:
    path = tmp_path / "portal.yaml"
    old, new = ManifestFiles(path, {}), ManifestFiles(path, {"guard.py": b""})
    [shown] = difference(old, new)
    assert new.hashes["guard.py"] in shown
    assert not [*difference(new, new)]


def test_reload_says_what_needs_a_restart_and_who_goes_on(portal: PortalCommand, running: Path) -> None:
    running.write_text("server: {workers: 3}\n")
    done = portal("reload", "--yes", cwd=running.parent)
    assert "after a restart: server.workers" in done.stderr
    assert (done.returncode, "goes on as before" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    "text",
    [
        "upstreams: {u: {url: 'https://a.example:${command:touch run}/mcp'}}",
        "server: {tokens: [{token: '${command:touch run}', name: a}, {token: '${keyring:a/b}', name: b}]}",
    ],
)
def test_reload_accepts_secrets_and_fetches_none(portal: PortalCommand, running: Path, text: str) -> None:
    running.write_text(text)
    portal("reload", "--yes", cwd=running.parent)
    assert Acceptance(running).hashes() == read_files(running, {}).hashes
    assert not (running.parent / "run").exists()


def test_word_of_a_command_may_be_longer_than_a_name(path: Path) -> None:
    path.write_text(f"upstreams: {{a: {{command: x, env: {{A: '${{command:printf {'a' * 300}}}'}}}}}}")
    assert list(read_files(path, {}).hashes) == ["portal.yaml"]


def test_lock_says_that_its_last_change_waits(portal: PortalCommand, running: Path) -> None:
    """For `reload`: to run `lock` again would not help."""
    text = yaml.safe_dump({"upstreams": {each: raw(tools=raw_tools("echo")) for each in ("a", "b")}})
    running.write_text(text)
    assert portal("reload", "--yes", cwd=running.parent).returncode == 1  # nothing answers in this portal
    assert portal("lock", "--accept", "a.*", cwd=running.parent).returncode == 0
    second = portal("lock", "--accept", "b.*", cwd=running.parent)
    assert second.returncode == 2 and "another process" not in second.stderr
    assert "a change of portal.lock waits, so nothing more was accepted; show and accept it" in second.stderr


def test_reload_says_if_no_portal_runs(portal: PortalCommand, path: Path) -> None:
    note_start(*choose_files(path))
    path.write_text("profiles: {second: {}}\n")
    done = portal("reload", "--yes", cwd=path.parent)
    assert (done.returncode, "no portal of this manifest runs" in done.stdout) == (0, True)
    assert Acceptance(path).hashes() == read_files(path, {}).hashes


# Middleware


@pytest.fixture
def imported() -> Iterator[None]:
    """Forget what a test imports."""
    before = {*sys.modules}
    yield
    for each in {*sys.modules} - before:
        del sys.modules[each]


def added(file: Path, *, is_compiled: bool) -> None:
    """Put a module there that was never accepted, perhaps only compiled."""
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text("raise SystemExit('added')")
    if is_compiled:
        py_compile.compile(str(file), f"{file}c")
        file.unlink()


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("place", ["hooks_a.py", "hooks_b/guard_b.py"])
def test_middleware_runs_as_it_was_accepted_whatever_lies_there_now(tmp_path: Path, place: str) -> None:
    """Neither the file counts, nor what is compiled beside it, nor an extension of that name."""
    file, name = tmp_path / place, place.removesuffix(".py").replace("/", ".")
    added(file, is_compiled=False)
    py_compile.compile(str(file), importlib.util.cache_from_source(str(file)))
    (tmp_path / f"{place.removesuffix('.py')}.abi3.so").write_text("changed")
    (tmp_path / "beside.py").write_text("answer = 1\n")
    accepted = {place: f"import beside\n{MIDDLEWARE}".encode()}
    (loaded,) = load_middleware([f"{name}:guard"], tmp_path, accepted)
    assert loaded.__module__ == name
    assert sys.modules[name].__file__ == str(file)


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("place", ["hooks_c.py", "hooks_c/__init__.py", "hooks_c/inner/__init__.py"])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_package_without_init_gets_none_later(tmp_path: Path, place: str, is_compiled: bool) -> None:
    added(tmp_path / place, is_compiled=is_compiled)
    accepted = {"hooks_c/inner/guard.py": MIDDLEWARE.encode()}
    (loaded,) = load_middleware(["hooks_c.inner.guard:guard"], tmp_path, accepted)
    assert loaded.__module__ == "hooks_c.inner.guard"


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("name", ["guard", "inner.guard", "installed"])
def test_installed_namespace_lets_no_added_package_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "site" / "hooks_f").mkdir(parents=True)
    (tmp_path / "site" / "hooks_f" / "installed.py").write_text(MIDDLEWARE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    added(tmp_path / "hooks_f" / "__init__.py", is_compiled=False)
    accepted = {"hooks_f/guard.py": MIDDLEWARE.encode(), "hooks_f/inner/guard.py": MIDDLEWARE.encode()}
    (loaded,) = load_middleware([f"hooks_f.{name}:guard"], tmp_path, accepted)
    assert loaded.__module__ == f"hooks_f.{name}"


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("name", ["hooks_d", "hooks_e.guard"])
def test_module_that_is_named_and_was_not_accepted_is_none(tmp_path: Path, name: str) -> None:
    added(tmp_path / f"{name.replace('.', '/')}.py", is_compiled=True)
    with pytest.raises(PortalError, match="there is no module"):
        load_middleware([f"{name}:guard"], tmp_path, {"other.py": b""})


def test_accepted_middleware_does_not_replace_an_installed_module(tmp_path: Path) -> None:
    accepted = {"json/__init__.py": MIDDLEWARE.encode(), "json.py": MIDDLEWARE.encode()}
    with pytest.raises(Exception, match="json has no guard"):
        load_middleware(["json:guard"], tmp_path, accepted)
    with pytest.raises(Exception, match=r"there is no module portal\.fake"):
        load_middleware(["portal.fake:guard"], tmp_path, {"portal/fake.py": MIDDLEWARE.encode()})


# Kills and restarts


def start(path: Path) -> ExitStack:
    """A portal, as `serve` starts it; closing the stack ends it in order."""
    files, waiting = choose_files(path)
    note_start(files, waiting)
    stack = ExitStack()
    stack.enter_context(serving(parse_manifest(files, {}, fetch_secrets), "", 0))
    return stack


def kill(portal: ExitStack) -> None:
    """What a killed process leaves: its lock is gone, and nothing else happens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Acceptance, "release", lambda self: None)
        portal.close()


def waiting(path: Path) -> tuple[str, ...]:
    return choose_files(path)[1]


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_kill_at_any_moment_lets_no_change_pass_and_an_end_in_order_does(path: Path, restarts: int) -> None:
    kill(start(path))  # the first one ever
    path.write_text(EVIL)
    for _ in range(restarts):
        kill(start(path))
    start(path).close()
    assert waiting(path), "it is held back by whoever ends while it is there"
    path.write_text(SAFE)
    start(path).close()
    path.write_text(EVIL)
    assert not waiting(path)


@pytest.mark.parametrize("first_ends", [ExitStack.close, kill])
@pytest.mark.parametrize("last_ends", [ExitStack.close, kill])
def test_last_of_several_portals_decides_what_waits(path: Path, first_ends: End, last_ends: End) -> None:
    first, last = start(path), start(path)
    first_ends(first)
    path.write_text(EVIL)
    assert waiting(path)
    path.write_text(SAFE)
    last_ends(last)
    path.write_text(EVIL)
    assert bool(waiting(path)) is (last_ends is kill)


def test_portal_that_starts_while_another_ends_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, started, unlink = start(path), list[ExitStack](), Path.unlink

    def starting(file: Path, missing_ok: bool = False) -> None:
        if file.name == "held":
            started.append(start(path))
        unlink(file, missing_ok)

    monkeypatch.setattr(Path, "unlink", starting)
    first.close()
    kill(started[0])
    path.write_text(EVIL)
    assert waiting(path)


def test_portal_that_ends_meanwhile_frees_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream of the first one writes to and fro until its end."""
    first = start(path)
    path.write_text(EVIL)

    def slow(*args: Any) -> ManifestFiles:
        files = read_files(*args)
        path.write_text(SAFE)
        monkeypatch.undo()
        first.close()
        return files

    monkeypatch.setattr("portal.app.accepted.read_files", slow)
    assert waiting(path)


def test_start_that_fails_holds_nothing(portal: PortalCommand, path: Path) -> None:
    assert portal("--profile", "none", "serve", cwd=path.parent).returncode == 2
    assert not Acceptance(path).is_held


def test_reload_after_a_kill_lets_later_changes_apply(portal: PortalCommand, path: Path) -> None:
    kill(start(path))
    path.write_text(EVIL)
    portal("reload", "--yes", cwd=path.parent)
    path.write_text(SAFE)
    assert not waiting(path)


@pytest.mark.parametrize("is_started_by_the_link", [True, False])
@pytest.mark.parametrize("was_known", [True, False])
@pytest.mark.parametrize("name", ["portal.yaml", "other.yaml"])
def test_change_waits_for_every_name_of_the_manifest(
    path: Path, is_started_by_the_link: bool, was_known: bool, name: str
) -> None:
    link = path.parent / "linked" / name
    link.parent.mkdir()
    link.symlink_to(path)
    one, other = (link, path) if is_started_by_the_link else (path, link)
    if was_known:
        start(other).close()
    portal = start(one)
    path.write_text(EVIL)
    assert waiting(other)
    kill(portal)
    path.write_text(SAFE)
    note_start(*choose_files(one))  # it is killed at once
    path.write_text(EVIL)
    files, waits = choose_files(other)
    assert waits == (other.name,)
    assert files.contents[other.name] == SAFE.encode()
    path.write_text(SAFE)
    start(other).close()
    path.write_text(EVIL)
    assert not waiting(one)


def test_link_that_led_elsewhere_before_holds_both_records(path: Path, tmp_path: Path) -> None:
    former, link = tmp_path / "former.yaml", tmp_path / "link.yaml"
    former.write_text(SAFE)
    link.symlink_to(former)
    start(link).close()
    start(path).close()
    link.unlink()
    link.symlink_to(path)
    kill(start(link))
    path.write_text(EVIL)
    assert waiting(path)


# Programs

COMMANDS = [
    "./token.sh",
    "sh token.sh",
    "sh -c './token.sh | head'",
    "{here}/token.sh",
    "env F=bin/../token.sh sh token.sh",
]


@pytest.fixture
def with_command(path: Path, request: pytest.FixtureRequest) -> Path:
    """A manifest with a secret from a program beside it."""
    program = path.with_name("token.sh")
    program.write_text("#!/bin/sh\necho secret123\n")
    program.chmod(0o700)
    (path.parent / "bin").mkdir()
    text = request.param.replace("{here}", str(path.parent))
    path.write_text(f'server: {{token: "${{command:{text}}}"}}\n')
    return path


@pytest.mark.parametrize("with_command", COMMANDS, indirect=True)
def test_program_waits_and_is_not_run_when_it_has_changed(portal: PortalCommand, with_command: Path) -> None:
    accepted = read_files(with_command, {})
    assert "secret123" in parse_manifest(accepted, {}, fetch_secrets).hidden
    kill(start(with_command))
    with with_command.with_name("token.sh").open("a") as program:
        program.write("touch ran\n")
    assert waiting(with_command) == ("token.sh",)
    with pytest.raises(ManifestError, match="not run"):
        parse_manifest(accepted, {}, fetch_secrets)
    portal("check", cwd=with_command.parent)
    assert "+touch ran" in portal("reload", cwd=with_command.parent).stdout
    assert not (with_command.parent / "ran").exists()
    parse_manifest(read_files(with_command, {}), {}, fetch_secrets)
    assert (with_command.parent / "ran").exists()


def test_header_is_renewed_by_the_program_that_was_accepted(path: Path) -> None:
    program = path.with_name("token.sh")
    program.write_text("echo secret123\n")
    header = '{Authorization: "${command:sh token.sh}"}'
    path.write_text(f"upstreams: {{a: {{url: 'https://a.example/mcp', headers: {header}}}}}\n")
    before = parse_manifest(read_files(path, {}), {}, fetch_secrets)
    [renew] = header_renewals(before).values()
    assert anyio.run(renew) == ({"Authorization": "secret123"}, ("secret123",))
    program.write_text("touch ran; echo secret123\n")
    assert anyio.run(renew) is None
    assert not (path.parent / "ran").exists()
    after = parse_manifest(read_files(path, {}), {}, fetch_secrets)
    old, new = (upstream_settings(each)["a"] for each in (before, after))
    assert not new.connects_as(old), "the connection gets the renewal that may run it"
    path.write_text(f"{path.read_text()}profiles: {{more: {{}}}}\n")
    assert upstream_settings(parse_manifest(read_files(path, {}), {}, fetch_secrets))["a"].connects_as(new)


def test_command_needs_no_file_and_may_read_one_elsewhere(path: Path) -> None:
    (path.parent / "folder").mkdir()
    command = 'sh -c "echo secret123" folder /etc/hostname missing.txt'
    path.write_text(f"server: {{token: '${{command:{command}}}'}}\n")
    files = read_files(path, {})
    assert [*files.contents] == ["portal.yaml"]
    assert "secret123" in parse_manifest(files, {}, fetch_secrets).hidden


def test_program_of_a_command_is_no_middleware(path: Path) -> None:
    path.with_name("token.py").write_text("print('secret123')")
    path.write_text("server: {token: '${command:python3 token.py}'}\n")
    manifest = parse_manifest(read_files(path, {}), {}, fetch_secrets)
    assert "token.py" in manifest.hashes
    assert not manifest.modules


def test_reload_shows_settings_and_what_starts_something(portal: PortalCommand, running: Path) -> None:
    env = "{K: '${SECRET}${OTHER:-}', R: '${REGION:-eu}'}"
    running.write_text(f"upstreams:\n  x: {{command: '${{RUNNER}}', args: ['${{PAGE:-a}}'], env: {env}}}\n")
    has_secrets(
        running, "RUNNER=/usr/bin/touch\nPAGE=pwned\nSECRET=very-secret\nOTHER=very-secret\nREGION=us\n"
    )
    shown = portal("reload", cwd=running.parent).stdout
    assert all(each in shown for each in ("/usr/bin/touch", "pwned", "us", "SECRET"))
    assert "very-secret" not in shown


def test_lock_of_garbage_is_told_after_few_lines(path: Path) -> None:
    path.with_name("portal.lock").write_bytes(HEADER.encode() + b"\nx" * 1_000_000)
    with pytest.raises(ManifestError) as caught:
        parse_manifest(read_files(path, {}), {})
    assert len(caught.value.problems) == 10


def test_huge_file_is_refused_without_being_read(path: Path) -> None:
    with path.with_name("portal.lock").open("wb") as file:
        file.truncate(1 << 40)
    assert "larger" in str(read_files(path, {}).problem)
