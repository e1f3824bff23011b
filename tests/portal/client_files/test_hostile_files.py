"""Files that a stranger wrote: each is told with its line, and the others are read all the same."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.client_files.errors import ClientFileError
from portal.client_files.raw_file import MAX_BYTES
from tests.portal.client_files.homes import Home

JSON_FAULTS: list[tuple[str | bytes, int | None]] = [
    ('{"mcpServers": {"a": {"command": "x"}}', 1),
    ("\n\n[]", 1),
    ("\n3", 1),
    ('{\n"mcpServers": []}', 2),
    ('{\n"mcpServers": "x"}', 2),
    ('{"mcpServers":\n{"a": {}, "a": {}}}', 2),
    (b'{"a": 1,\n"\xff": 2}', 2),
    (b"\0" * 100, 1),
    ("[" * 100_000, 1),
    ('{"mcpServers": ' * 100_000, 1),
    (b" " * (MAX_BYTES + 1), None),
    ('{"mcpServers": {' + ",".join(f'"{n}": 1' for n in range(1001)) + "}}", None),
]
TOML_FAULTS: list[tuple[str | bytes, int | None]] = [
    ("a = 1\nb = \n", 2),
    ("a = 1\na = 2\n", 2),
    ("mcp_servers = 3\n", None),
    ("a = " + "[" * 100_000, None),
    ("a = 1" + "0" * 100_000, None),
    ("\n" + "a." * 100_000 + "b = 1", 2),
    ("\n[" + "a." * 100_000 + "b]", 2),
    ("\na = {" + "b." * 100_000 + "c = 1}", 2),
    ("\n'a'" + ".'a'" * 100_000 + " = 1", 2),
    (b"\xff", 1),
    (b"#" * 2_000_000, None),
]


def problem(home: Home, client: str) -> ClientFileError:
    found = home.contents()[client].problem
    assert found is not None
    return found


@pytest.mark.parametrize(("content", "line"), JSON_FAULTS, ids=range(len(JSON_FAULTS)))
def test_json_that_cannot_be_used(home: Home, content: str | bytes, line: int | None) -> None:
    path = home.write("cursor", content)
    home.servers("windsurf", fine={"command": "x"})
    found = problem(home, "cursor")
    assert (found.path, found.line) == (path, line) and str(path) in str(found)
    assert list(home.taken()) == ["fine"]


@pytest.mark.parametrize(("content", "line"), TOML_FAULTS, ids=range(len(TOML_FAULTS)))
def test_toml_that_cannot_be_used(home: Home, content: str | bytes, line: int | None) -> None:
    path = home.write("codex", content)
    home.servers("windsurf", fine={"command": "x"})
    found = problem(home, "codex")
    assert (found.path, found.line) == (path, line)
    assert list(home.taken()) == ["fine"]


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"{}", b"// none\n", b'{"mcpServers": null}', b'{"mcpServers": {}}']
)
def test_a_file_without_servers_is_no_problem(home: Home, content: bytes) -> None:
    home.write("cursor", content)
    found = home.contents()["cursor"]
    assert (found.problem, found.servers) == (None, [])


LONG = 32 * 1024


@pytest.mark.parametrize(
    "text",
    [
        "a-" * (LONG // 2),
        "${" * (LONG // 2),
        "$AA " * (LONG // 4),
        "x://" + "/" * 30_000,
        "x://y?" + "a=b&" * 8_000,
        "k:" * 9_000,
    ],
    ids=["name", "open", "variables", "path", "query", "said"],
)
def test_long_texts_cost_what_they_are_long(home: Home, text: str) -> None:
    home.servers("gemini", it={"command": "x", "args": [text[:LONG]] * 20}, fine={"command": "fine"})
    assert "fine" in home.taken()  # within the deadline of every test, at which quadratic readers fail


def test_a_file_that_says_too_much_is_told(home: Home) -> None:
    home.servers("cursor", it={"command": "x", "args": ["a" * 30_000] * 40})
    assert problem(home, "cursor")


def test_what_is_no_file_is_told(home: Home) -> None:
    home.path("cursor").mkdir(parents=True)
    home.path("windsurf").parent.mkdir(parents=True)
    os.mkfifo(home.path("windsurf"))
    assert problem(home, "cursor") and problem(home, "windsurf")


def test_errors_repeat_nothing_of_the_file(home: Home) -> None:
    home.write("cursor", '{"mcpServers": {"a": {"env": {"TOKEN": "hunter2" "x"}}}}')
    home.write("codex", '[mcp_servers.a]\ntoken = "hunter2" x\n')
    assert "hunter2" not in str(problem(home, "cursor")) + str(problem(home, "codex"))


def test_a_repeated_key_in_one_entry_leaves_out_that_entry(home: Home) -> None:
    home.write("cursor", '{"mcpServers": {"a": {"command": "x", "command": "y"}, "b": {"command": "z"}}}')
    merged = home.merged()
    assert [out.origin.name for out in merged.left_out] == ["a"]
    assert [each.name for each in merged.taken] == ["b"]


@given(content=st.binary(max_size=200))
def test_no_bytes_take_the_reader_down(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = Home(Path(tmp_path_factory.getbasetemp()))
    home.write("cursor", content)
    home.write("codex", content)
    home.merged()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["x", "${env:A}", "https://x/y"]),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["command", "args", "env", "url", "headers", "type", "cwd", "disabled", "timeout"]
            ),
            each,
        )
    ),
    max_leaves=12,
)


@given(entry=JSON, name=st.text(min_size=1, max_size=30))
def test_no_entry_takes_the_reader_down_and_what_is_taken_can_be_written(
    entry: object, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = Home(Path(tmp_path_factory.getbasetemp()))
    home.servers("cursor", **{name: entry, "fine": {"command": "fine"}})
    merged = home.merged()
    assert len(merged.taken) + len(merged.left_out) == 1 + (name != "fine")
    for each in merged.taken:
        each.server.spec()
