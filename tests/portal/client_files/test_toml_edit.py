"""Edits of Codex's configuration: tables go and come, and not one character of the rest changes."""

import tomllib

import pytest

from portal.client_files.json_edit import CannotEditError
from portal.client_files.toml_edit import table_text, table_texts, with_tables, without_tables

KEY = "mcp_servers"
TEXT = '''\
model = "x"  # mine

# about one
[mcp_servers.one]
command = "1"
args = ["[mcp_servers.two]"]

[mcp_servers.one.env]
A = "b"

# about two
[ mcp_servers . "two words" ]
url = "https://x.example/mcp"

# profiles
[profiles.a]
model = """
several
lines"""
'''


def test_a_server_goes_with_its_tables() -> None:
    text = without_tables(TEXT, KEY, ["one"])
    start, end = TEXT.index("[mcp_servers.one]"), TEXT.index("# about two")
    assert text == TEXT[:start] + TEXT[end:]


def test_a_byte_order_mark_stays_where_it_is() -> None:
    first = TEXT[TEXT.index("[mcp_servers.one]") :]
    rest = without_tables(f"\ufeff{first}", KEY, ["one"])
    assert rest == "\ufeff" + without_tables(first, KEY, ["one"])
    assert table_texts(f"\ufeff{first}", KEY, ["one"]) == table_texts(first, KEY, ["one"])
    added = table_text(KEY, "new", {"command": "x"})
    assert with_tables("\ufeff", KEY, {"new": added}) == f"\ufeff{added}"
    assert without_tables(with_tables(rest, KEY, {"new": added}), KEY, ["new"]).startswith(rest)


def test_names_in_quotes_are_the_same_names() -> None:
    text = without_tables(TEXT, KEY, ["two words"])
    assert tomllib.loads(text)[KEY].keys() == {"one"} and "# profiles" in text


def test_all_can_go_and_come_back() -> None:
    texts = table_texts(TEXT, KEY, ["one", "two words"])
    out = without_tables(TEXT, KEY, texts.keys())
    assert KEY not in tomllib.loads(out)
    assert tomllib.loads(with_tables(out, KEY, texts)) == tomllib.loads(TEXT)


def test_a_table_is_added_at_the_end() -> None:
    added = table_text(KEY, "portal", {"command": 'a "b"\\\x7f', "args": ["é", "\n"], "env_vars": []})
    text = with_tables(TEXT, KEY, {"portal": added})
    assert text.startswith(TEXT)
    assert tomllib.loads(text)[KEY]["portal"] == {
        "command": 'a "b"\\\x7f',
        "args": ["é", "\n"],
        "env_vars": [],
    }
    assert tomllib.loads(with_tables("", KEY, {"portal": added}))[KEY].keys() == {"portal"}
    crlf = with_tables(TEXT.replace("\n", "\r\n"), KEY, {"portal": added})
    assert "\n" not in crlf.replace("\r\n", "")


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = {one = {command = "1"}}\n',
        'mcp_servers.one.command = "1"\n',
        '[mcp_servers]\none = {command = "1"}\n',
        'a = """\n[mcp_servers.one]\n"""\n[mcp_servers.one]\ncommand = "1"\n',
    ],
)
def test_servers_that_are_no_tables_are_refused(text: str) -> None:
    with pytest.raises(CannotEditError):
        without_tables(text, KEY, ["one"])


def test_nothing_is_added_to_what_is_closed() -> None:
    with pytest.raises(CannotEditError):
        with_tables(
            'mcp_servers = {one = {command = "1"}}\n', KEY, {"p": table_text(KEY, "p", {"command": "x"})}
        )
