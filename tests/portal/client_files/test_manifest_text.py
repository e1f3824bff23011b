"""What is written as portal.yaml says what was found, whatever that was, and leaves alone what is there."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.errors import ManifestError
from manifests.yaml_source import read_yaml
from portal.client_files.existing import CannotAddError, Existing
from portal.client_files.manifest_text import HEADING, upstream_lines
from portal.client_files.merging import Taken
from portal.client_files.places import CURSOR, Place
from portal.client_files.servers import Origin, Server

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
NEW = ["  # from here", '  "new one":', "    command: x"]
ADDED = {"new one": {"command": "x"}}

TIDY = """\
# mine
upstreams:       # all of them
    a:           # the first
        command: x

    b: {command: y, args: ["#"]}
    # the end

# what scripts may do
capabilities:
  limits: {tool_calls: 5}
"""


def taken(name: str, server_text: str, path: Path = Path("/x")) -> Taken:
    origin = Origin(Place(CURSOR, path), name, 1, ("mcpServers",))
    value = (server_text,)
    server = Server(origin, command=value, args=(value, value), env={server_text: value})
    return Taken(name, server, (origin,), is_new=True)


def assert_read_again(name: str, text: str, path: str) -> None:
    server = taken(name, text, Path(path))
    written = HEADING + "\n".join(upstream_lines([server], Path("/home/me")))
    source = read_yaml(written)
    assert (source.problems, source.data) == ((), {"upstreams": {name: server.server.spec()}})


@given(name=TEXTS, text=TEXTS, path=TEXTS)
def test_whatever_is_found_is_read_again_as_it_was(name: str, text: str, path: str) -> None:
    assert_read_again(name, text, path)


@pytest.mark.parametrize("letter", ["\u3164", "\ufe0f", "\u034f", "\u202e", "\u200b"])
def test_nothing_that_shows_nothing_is_written_as_it_is(letter: str) -> None:
    server = taken(f"a{letter}", letter, Path(f"/x/{letter}"))
    assert letter not in "\n".join(upstream_lines([server], Path("/home/me")))
    assert_read_again(letter, letter, f"/x/{letter}")


def test_ordinary_text_is_written_as_it_is() -> None:
    text = "Grüße ❤\ufe0f 👩\u200d💻 می\u200cخواهم 全角\u3000"
    assert f'"{text}"' in "\n".join(upstream_lines([taken("a", text)], Path("/home/me")))
    assert_read_again(text, text, f"/x/{text}")


@pytest.mark.parametrize(
    "word", ["no", "Null", "1", "0x1", "1e3", "~", "-", "a: b", "a #b", "@x", "*a", "&a", "!a", "{", "'"]
)
def test_words_that_mean_something_to_yaml_stay_texts(word: str) -> None:
    assert_read_again(word, word, word)


def test_a_path_cannot_add_a_line(tmp_path: Path) -> None:
    for line_end in ("\n", "\r", "\x85", "\u2028", "\u2029"):
        server = taken("a", "x", Path(f"/x{line_end}  evil: {{command: rm}}"))
        source = read_yaml(HEADING + "\n".join(upstream_lines([server], tmp_path)))
        assert isinstance(source.data, dict) and list(source.data["upstreams"]) == ["a"]


def test_adding_keeps_every_line_that_is_there() -> None:
    text = Existing.of(TIDY).with_upstreams(NEW, ADDED)
    assert text == TIDY.replace(
        "    # the end\n", '    # the end\n    # from here\n    "new one":\n      command: x\n'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "upstreams:\n" + "\n".join(NEW) + "\n"),
        ("# none\n", "# none\nupstreams:\n" + "\n".join(NEW) + "\n"),
        ("server: {}", "server: {}\nupstreams:\n" + "\n".join(NEW) + "\n"),
        ("upstreams:\nserver: {}\n", "upstreams:\n" + "\n".join(NEW) + "\nserver: {}\n"),
        ("upstreams:\n  a: {command: x}", "upstreams:\n  a: {command: x}\n" + "\n".join(NEW) + "\n"),
        ("upstreams:\n  a:\n    command: |\n      x\n\n\n", None),
        (
            "upstreams:\r\n  a: {command: x}\r\n",
            "upstreams:\r\n  a: {command: x}\r\n" + "\r\n".join(NEW) + "\r\n",
        ),
    ],
)
def test_sparse_manifests_are_added_to(text: str, expected: str | None) -> None:
    added = Existing.of(text).with_upstreams(NEW, ADDED)
    assert expected is None or added == expected
    data = read_yaml(added).data
    assert isinstance(data, dict) and data["upstreams"]["new one"] == {"command": "x"}


@pytest.mark.parametrize(
    "text",
    [
        "upstreams: {a: {command: x}}\n",
        "upstreams: {}\n",
        "{}\n",
        "[1]\n",
        "upstreams:\n a: {command: x}\n",
        "upstreams:\n  a: &x {command: x}\n  b: *x\n...\n",
        "upstreams:\n  a:\n    command: |+\n      the blank lines count\n\n\n",
    ],
)
def test_what_cannot_be_added_to_is_refused(text: str) -> None:
    with pytest.raises(CannotAddError):
        Existing.of(text).with_upstreams(NEW, ADDED)


def test_what_is_no_manifest_is_an_error() -> None:
    for text in ("a: [", "a: 1\na: 2"):
        with pytest.raises(ManifestError):
            Existing.of(text)
