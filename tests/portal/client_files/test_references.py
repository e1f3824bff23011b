"""What each client fills in where an entry says so, and how a manifest says it."""

import pytest

from manifests.json_value import Json
from tests.portal.client_files.homes import Home


def test_claude_desktop_fills_in_nothing(home: Home) -> None:
    spec = home.spec(
        "claude-desktop", {"command": "x", "args": ["$A ${B} ${env:C} ${command:rm} $"], "env": {}}
    )
    assert spec["args"] == ["$A $${B} $${env:C} $${command:rm} $"]


def test_claude_code_fills_in_braces(home: Home) -> None:
    entry: Json = {
        "command": "x",
        "args": ["${A}/${B:-c}", "$A", "${OWN}", "${command:rm}"],
        "env": {"OWN": "${A}"},
    }
    assert home.spec("claude-code", entry) == {
        "command": "x",
        "args": ["${A}/${B:-c}", "$A", "$${OWN}", "$${command:rm}"],
        "env": {"OWN": "${A}"},
    }


def test_a_default_that_a_manifest_cannot_say_is_a_reason(home: Home) -> None:
    for text in ("${A:-$B}", "${A:-${B}}", "${A:-b${C}"):
        assert home.reason("claude-code", {"command": "x", "args": [text]})


def test_gemini_fills_in_dollars(home: Home) -> None:
    entry: Json = {"command": "x", "args": ["$A", "${B}", "pa$$word", "100$"], "env": {"C": "$DB_LINE"}}
    assert home.spec("gemini", entry) == {
        "command": "x",
        "args": ["${A}", "${B}", "pa$$word", "100$"],
        "env": {"C": "${DB_LINE}"},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bearer $A_TOKEN", "Bearer ${A_TOKEN}"),
        ("https://x.example/$ID?key=$KEY", "https://x.example/${ID}?key=${KEY}"),
        ("$lower", "${lower}"),
        ("to $lower", "to $lower"),
        ("pass$WORD", "pass$WORD"),
        ("pa$$WORD", "pa$$WORD"),
        ("$5", "$5"),
    ],
)
def test_a_dollar_of_gemini_is_a_variable_or_a_character(home: Home, text: str, expected: str) -> None:
    assert home.spec("gemini", {"command": "x", "env": {"A": text}})["env"] == {"A": expected}
    set_here = Home(home.folder, dict.fromkeys(("lower", "WORD"), "x"))
    assert set_here.spec("gemini", {"command": "x", "args": ["Bearer $lower", "pass$WORD"]})["args"] == [
        "Bearer ${lower}",
        "pass${WORD}",
    ]


@pytest.mark.parametrize("client", ["cursor", "vscode", "windsurf"])
def test_editors_fill_in_what_has_a_prefix(home: Home, client: str) -> None:
    entry: Json = {"command": "${userHome}/x", "args": ["${env:A}-${B}", "${workspaceFolder}/y${/}z"]}
    assert home.spec(client, entry) == {
        "command": f"{home.folder}/x",
        "args": ["${A}-$${B}", f"{home.project}/y/z"],
    }


def test_a_workspace_that_is_not_one_files_is_told(home: Home) -> None:
    entry: Json = {"command": "${workspaceFolder}/x"}
    home.servers("cursor", it=entry)
    assert str(home.project) in home.merged().taken[0].notes[0]
    home.path("cursor").unlink()
    home.servers("cursor-project", it=entry)
    assert home.merged().taken[0].notes == ()


@pytest.mark.parametrize("text", ["${file:/x}", "${command:pick}", "${config:a.b}", "${env:A(x86)}"])
def test_what_only_the_client_knows_is_a_reason(home: Home, text: str) -> None:
    assert home.reason("vscode", {"command": "x", "args": [text]})


def test_inputs_of_vs_code_are_variables(home: Home) -> None:
    home.servers("vscode", it={"command": "x", "env": {"KEY": "${input:api-key}"}})
    merged = home.merged()
    (variable,) = merged.variables
    assert merged.taken[0].server.spec()["env"] == {"KEY": "${API_KEY}"}
    assert (variable.name, variable.input_id, variable.value) == ("API_KEY", "api-key", None)
