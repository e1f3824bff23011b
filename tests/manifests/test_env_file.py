"""portal.env: values beside the manifest, for its owner alone."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.errors import ManifestError
from manifests.loader import load_manifest
from manifests.portal_manifest import StdioUpstream
from manifests.references import MAX_BYTES, env_text, read_env

MANIFEST = 'upstreams: {a: {command: x, env: {TOKEN: "${TOKEN}"}}}\n'


def owned(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o600)
    return path


def token(folder: Path, **environ: str) -> str:
    upstream = load_manifest(folder / "portal.yaml", environ).portal.upstreams["a"]
    assert isinstance(upstream, StdioUpstream)
    return upstream.env["TOKEN"]


def refusal(path: Path) -> list[tuple[int | None, str]]:
    with pytest.raises(ManifestError) as refused:
        read_env(path)
    assert refused.value.file == path.name
    return [(problem.line, problem.message) for problem in refused.value.problems]


def test_what_the_environment_lacks_is_taken_from_beside_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "portal.yaml").write_text(MANIFEST)
    with pytest.raises(ManifestError):
        token(tmp_path)
    owned(tmp_path / "portal.env", "TOKEN=kept\n")
    assert token(tmp_path) == "kept"
    assert token(tmp_path, TOKEN="set") == "set"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("export A = b c ", "b c"),
        ("A=", ""),
        ("A=b#c=d", "b#c=d"),
        (r'A="b\n\"c\" \u00e9"', 'b\n"c" é'),
        ("A='b\\n$c'", "b\\n$c"),
        ("\ufeffA=b\r", "b"),
    ],
)
def test_a_line_is_a_name_and_its_value(tmp_path: Path, line: str, value: str) -> None:
    assert read_env(owned(tmp_path / "portal.env", f"{line}\n# B=c\n\n")) == {"A": value}


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True),
        st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    )
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.env"
    assert read_env(owned(path, env_text(values))) == values


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = owned(tmp_path / "portal.env", "A=b\n")
    assert read_env(path) == {"A": "b"}
    path.chmod(0o640)
    assert "owner" in refusal(path)[0][1]


def test_every_line_that_says_nothing_is_named_and_never_shown(tmp_path: Path) -> None:
    path = owned(
        tmp_path / "portal.env", 'A=b\nhunter2\nB=\'x\nA=c\nC="\\q"\nD="\\u0000"\n2E=x\nF="\\ud800"\n'
    )
    told = refusal(path)
    assert [line for line, _ in told] == [2]
    assert "hunter2" not in str(told)


@pytest.mark.parametrize("content", [b"A=\xff\n", b"#" * (MAX_BYTES + 1), b"x\n" * 5000])
def test_hostile_content_is_refused(tmp_path: Path, content: bytes) -> None:
    assert 1 <= len(refusal(owned(tmp_path / "portal.env", content))) <= 100


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.env").mkdir()
    os.mkfifo(tmp_path / "pipe.env", 0o600)
    assert refusal(tmp_path / "folder.env") and refusal(tmp_path / "pipe.env")
