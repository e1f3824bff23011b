"""`${command:...}` and `${keyring:service/user}`: what a manifest takes from programs and from the system keyring."""

import shlex
import sys
from pathlib import Path

import pytest

from manifests.errors import ManifestError, Problem
from manifests.loader import load_manifest
from manifests.manifest import Manifest
from manifests.portal_manifest import StdioUpstream
from tests.own_keyring import OwnKeyring
from tests.portal.peers import write_manifest
from upstreams import secret_sources

SECRET = "canary-7f3d9e-value"
FAILING = f"import sys; print({SECRET!r}); print({SECRET!r}, file=sys.stderr); sys.exit(7)"


def python(code: str) -> str:
    """A command line that runs Python code; a reference holds no brace, so neither may the code."""
    return f"{sys.executable} -c {shlex.quote(code)}"


def loaded(folder: Path, value: str) -> Manifest:
    path = write_manifest(folder, {"a": {"command": "x", "env": {"KEY": value}}})
    return load_manifest(path, {}, secret_sources.fetch_secrets)


def key(manifest: Manifest) -> str:
    spec = manifest.portal.upstreams["a"]
    assert isinstance(spec, StdioUpstream)
    return spec.env["KEY"]


def problem(folder: Path, value: str) -> Problem:
    with pytest.raises(ManifestError) as caught:
        loaded(folder, value)
    (found,) = caught.value.problems
    assert (found.key, found.line is not None) == ("upstreams.a.env.KEY", True)
    return found


def test_command_gives_what_it_prints_without_white_space_around_it(tmp_path: Path) -> None:
    padded = python(f"print('  {SECRET}  ')")
    manifest = loaded(tmp_path, f"Bearer ${{command:{padded}}}!")
    assert key(manifest) == f"Bearer {SECRET}!"
    assert list(manifest.hidden) == [SECRET]


def test_command_has_no_shell(tmp_path: Path) -> None:
    words = "$HOME; touch touched > x `id`"
    assert key(loaded(tmp_path, f"${{command:echo {words}}}")) == words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["portal.yaml"]


def test_command_is_run_once_however_often_it_is_written(tmp_path: Path) -> None:
    reference = f"${{command:{python('open(chr(110), chr(97)).write(chr(49)); print(7)')}}}"
    assert key(loaded(tmp_path, f"{reference}{reference}")) == "77"
    assert (tmp_path / "n").read_text() == "1"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (python(FAILING), "exit status 7"),
        (python("import os; os.abort()"), "signal 6"),
        (python("pass"), "printed nothing"),
        (python("import os; os.write(1, bytes([255]))"), "not UTF-8"),
        (python("print(9 * 70_000 * chr(65))"), "more than 65536 bytes"),
        ("no-such-program-7f3d", "'no-such-program-7f3d' cannot be started"),
        ("echo 'open", "split into words"),
        ("", "no command"),
    ],
)
def test_command_that_gives_nothing_is_an_error_with_its_place(
    tmp_path: Path, command: str, named: str
) -> None:
    found = problem(tmp_path, f"${{command:{command}}}")
    assert named in found.message and SECRET not in found.message + found.hint


def test_secrets_do_not_go_where_scripts_read_them(tmp_path: Path) -> None:
    environment = {"A": "${command:touch touched}", "B": "${keyring:a/b}"}
    path = write_manifest(tmp_path, {}, capabilities={"environment": environment})
    with pytest.raises(ManifestError) as caught:
        load_manifest(path, {}, secret_sources.fetch_secrets)
    assert [found.key for found in caught.value.problems] == [
        f"capabilities.environment.{name}" for name in environment
    ]
    assert not (tmp_path / "touched").exists()


def test_keyring_gives_what_it_holds(tmp_path: Path, own_keyring: OwnKeyring) -> None:
    own_keyring.set_password("https://x.example/y", "me", SECRET)
    manifest = loaded(tmp_path, "Bearer ${keyring:https://x.example/y/me}")
    assert (key(manifest), [*manifest.hidden]) == (f"Bearer {SECRET}", [SECRET])


def test_what_the_keyring_lacks_is_told_with_the_command_to_run(
    tmp_path: Path, own_keyring: OwnKeyring
) -> None:
    assert problem(tmp_path, "${keyring:a b/me}").hint.endswith("keyring set 'a b' me")
