"""Servers of several clients become one list, always the same one."""

import json

import pytest

from manifests.json_value import Json
from portal.client_files.merging import Merged
from portal.client_files.quotation import quoted
from portal.client_files.target import Target
from tests.portal.client_files.homes import Home

TIME: Json = {"command": "uvx", "args": ["mcp-server-time"]}


def hub(token: str) -> Json:
    return {"command": "hub", "env": {"HUB_TOKEN": token}}


def test_the_same_server_of_two_clients_is_one(home: Home) -> None:
    home.servers("claude-desktop", time=TIME)
    home.servers("cursor", clock={**TIME, "env": {}, "type": "stdio"})  # type: ignore[dict-item]  # Json is any
    home.write("codex", '[mcp_servers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]\n')
    (taken,) = home.merged().taken
    assert (taken.name, [origin.place.name for origin in taken.origins]) == (
        "time",
        ["claude-desktop", "cursor", "codex"],
    )


def test_different_servers_of_one_name_are_told_apart_by_their_client(home: Home) -> None:
    home.servers("claude-desktop", hub=hub("one"))
    home.servers("cursor", hub=hub("two"))
    home.servers("cursor-project", hub=hub("three"))
    home.servers("vscode", **{"hub-cursor": hub("four"), "hub": hub("one")})
    taken = home.taken()
    assert list(taken) == ["hub", "hub-cursor", "hub-cursor-project", "hub-cursor-vscode"]
    assert len(taken["hub"].origins) == 2
    assert "'hub'" in taken["hub-cursor"].notes[0]


def test_names_that_give_one_namespace_are_told_apart(home: Home) -> None:
    home.servers("cursor", **{"a-b": {"command": "1"}, "a_b": {"command": "2"}, "a.b": {"command": "3"}})
    assert list(home.taken()) == ["a-b", "a_b-cursor", "a.b-cursor-2"]


def test_names_that_no_manifest_takes_are_replaced_and_told(home: Home) -> None:
    home.servers(
        "cursor",
        **{
            "": {"command": "1"},
            "日本": {"command": "2"},
            "a\nb": {"command": "3"},
            "c" * 200: {"command": "4"},
        },
    )
    taken = home.taken()
    assert list(taken) == ["server", "server-cursor", "a_b", "c" * 70]
    assert all("called" in each.notes[0] for each in taken.values())


def test_long_names_that_are_cut_to_the_same_fit_a_manifest(home: Home) -> None:
    servers: dict[str, Json] = {"c" * 200 + str(n): {"command": str(n)} for n in range(3)}
    home.servers("claude-code-project", **servers)
    assert loads(home) and len(home.taken()) == 3


NO_FILTERS: list[Json] = [[""], ["a" * 600], ["${env:X}"], ["[" * 200], ["a"] * 1001]


@pytest.mark.parametrize("key", ["includeTools", "excludeTools"])
@pytest.mark.parametrize("names", NO_FILTERS, ids=range(len(NO_FILTERS)))
def test_a_filter_that_no_manifest_takes_leaves_out_its_server_alone(
    home: Home, key: str, names: Json
) -> None:
    home.servers("cursor", bad={**TIME, key: names}, time={**TIME, key: ["a"]})
    assert loads(home)
    assert [out.origin.name for out in home.merged().left_out] == ["bad"]
    assert list(home.taken()) == ["time"]


@pytest.mark.parametrize(
    ("url", "environ", "is_taken"),
    [
        ("${env:HUB}", {}, True),
        ("${env:HUB}/mcp", {}, True),
        ("${env:HUB}/mcp", {"HUB": "https://hub.example"}, True),
        ("${env:HUB}/mcp", {"HUB": "hub"}, False),
        ("${env:HUB}/mcp", {"HUB": ""}, False),
        ("https://${env:HUB}/mcp", {}, True),
        ("https://${env:HUB}/mcp", {"HUB": ""}, False),
        ("", {}, False),
    ],
)
def test_a_url_of_a_variable_is_taken_over_unless_it_is_known_to_be_none(
    home: Home, url: str, environ: dict[str, str], is_taken: bool
) -> None:
    home.servers("cursor", hub={"url": url}, time=TIME)
    home = Home(home.folder, environ)
    assert loads(home) and list(home.taken()) == (["hub"] if is_taken else []) + ["time"]


def test_a_manifest_whose_urls_are_variables_can_be_added_to(home: Home) -> None:
    (home.folder / "portal.yaml").write_text(
        "upstreams:\n  a:\n    url: ${A}/mcp\n  b:\n    url: ${B:-http://b}\n"
    )
    home.servers("cursor", time=TIME)
    assert loads(home)


def loads(home: Home) -> bool:
    """Whether a portal would take the manifest with all that is taken over; it raises otherwise."""
    target = Target.at(home.folder / "portal.yaml")
    merged = home.merged(target.existing.text)
    target.require_loading(target.text(merged.taken, home.folder), merged.variables, home.environ)
    return True


def test_each_secret_gets_a_variable_and_equal_ones_share_it(home: Home) -> None:
    home.servers("claude-desktop", hub=hub("one"), other={"command": "other", "env": {"HUB_TOKEN": "one"}})
    home.servers("cursor", hub=hub("two"))
    merged = home.merged()
    assert {each.name: each.value for each in merged.variables} == {
        "HUB_TOKEN": "one",
        "HUB_CURSOR_HUB_TOKEN": "two",
    }
    assert merged.variables[0].used_by == ("hub", "other")
    assert all("one" not in str(each.server.spec()) for each in merged.taken)


def test_a_variable_that_is_set_to_something_else_is_not_used(home: Home) -> None:
    home.servers("cursor", hub=hub("one"))
    assert [v.name for v in Home(home.folder, {"HUB_TOKEN": "one"}).merged().variables] == ["HUB_TOKEN"]
    assert [v.name for v in Home(home.folder, {"HUB_TOKEN": "2"}).merged().variables] == ["HUB_TOKEN_2"]
    assert [v.name for v in home.merged(kept={"HUB_TOKEN": "2"}).variables] == ["HUB_TOKEN_2"]
    assert [v.name for v in home.merged("upstreams: {a: {command: '${HUB_TOKEN}'}}").variables] == [
        "HUB_TOKEN_2"
    ]


def test_a_variable_is_not_called_by_its_server_twice(home: Home) -> None:
    home.servers("cursor", exa={"url": "https://exa.example/mcp?exaApiKey=x&token=y"})
    assert [v.name for v in home.merged().variables] == ["EXA_API_KEY", "EXA_TOKEN"]


def test_a_reference_of_a_client_keeps_its_variable(home: Home) -> None:
    home.servers("claude-desktop", hub=hub("one"))
    home.servers("cursor", hub=hub("${env:HUB_TOKEN}"))
    taken = home.taken()
    assert taken["hub"].server.spec()["env"] == {"HUB_TOKEN": "${HUB_TOKEN_2}"}
    assert taken["hub-cursor"].server.spec()["env"] == {"HUB_TOKEN": "${HUB_TOKEN}"}


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("HUB_TOKEN", "hunter2"),
        ("REGION", "ghp_abcdefghijklmnop1234"),
        ("DATABASE_URL", "postgres://me:hunter2@db.example/x"),
    ],
)
def test_a_secret_that_is_the_default_of_a_variable_is_one(home: Home, name: str, default: str) -> None:
    home.servers("claude-code", hub={"command": "hub", "args": [f"${{{name}:-{default}}}"]})
    merged = home.merged()
    assert merged.taken[0].server.spec()["args"] == [f"${{{name}}}"]
    assert [(each.name, each.value) for each in merged.variables] == [(name, default)]
    (taken,) = Home(home.folder, {name: "else"}).merged().taken
    assert taken.server.spec()["args"] == [f"${{{name}}}"]


def test_a_default_that_is_no_secret_stays(home: Home) -> None:
    home.servers("claude-code", hub={"command": "hub", "args": ["${REGION:-eu}", "${HUB_TOKEN:-}"]})
    assert home.merged().taken[0].server.spec()["args"] == ["${REGION:-eu}", "${HUB_TOKEN:-}"]


def test_what_the_manifest_has_is_not_new(home: Home) -> None:
    home.servers("cursor", time=TIME, hub=hub("one"), fresh={"command": "fresh"})
    existing = """
upstreams:
  clock: {command: uvx, args: [mcp-server-time], call_seconds: 5}
  github: {command: hub, env: {HUB_TOKEN: "${SOME_TOKEN}"}}
"""
    merged = home.merged(existing)
    assert [(each.name, each.is_new) for each in merged.taken] == [
        ("clock", False),
        ("github", False),
        ("fresh", True),
    ]
    assert {each.name: each.value for each in merged.variables} == {"SOME_TOKEN": "one"}
    assert [
        each.name for each in Home(home.folder, {"SOME_TOKEN": "two"}).merged(existing).taken if each.is_new
    ] == [
        "hub",
        "fresh",
    ]


def test_new_names_stay_clear_of_those_in_the_manifest(home: Home) -> None:
    home.servers("cursor", time=TIME)
    (taken,) = home.merged("upstreams: {time: {command: other}}").taken
    assert (taken.name, taken.is_new) == ("time-cursor", True)


def test_two_accounts_of_the_manifest_keep_their_own_secrets(home: Home) -> None:
    home.servers("cursor", hub=hub("one"))
    home.servers("gemini", hub=hub("two"))
    existing = """
upstreams:
  hub: {command: hub, env: {HUB_TOKEN: "${HUB_TOKEN}"}}
  hub-gemini: {command: hub, env: {HUB_TOKEN: "${HUB_GEMINI_HUB_TOKEN}"}}
"""
    both = {"HUB_TOKEN": "one", "HUB_GEMINI_HUB_TOKEN": "two"}
    merged = home.merged(existing)
    assert [(each.name, each.is_new) for each in merged.taken] == [("hub", False), ("hub-gemini", False)]
    assert {each.name: each.value for each in merged.variables} == both
    assert [each.name for each in home.merged(existing, kept=both).taken] == ["hub", "hub-gemini"]
    home.path("cursor").unlink()
    merged = home.merged(existing)
    assert {each.name: each.value for each in merged.variables} == {"HUB_GEMINI_HUB_TOKEN": "two"}


def test_what_a_variable_was_found_to_be_counts_for_the_next_server(home: Home) -> None:
    home.servers("cursor", hub=hub("one"), other={"command": "other", "env": {"HUB_TOKEN": "two"}})
    existing = """
upstreams:
  hub: {command: hub, env: {HUB_TOKEN: "${HUB_TOKEN}"}}
  other: {command: other, env: {HUB_TOKEN: "${HUB_TOKEN}"}}
"""
    merged = home.merged(existing)
    assert [(each.name, each.is_new) for each in merged.taken] == [("hub", False), ("other-cursor", True)]
    assert {each.name: each.value for each in merged.variables} == {
        "HUB_TOKEN": "one",
        "OTHER_CURSOR_HUB_TOKEN": "two",
    }


def asking(home: Home, client: str, **servers: Json) -> None:
    ids = ["api-key", "path", "home", "apiKey"]
    home.write(client, json.dumps({"inputs": [{"id": each} for each in ids], "servers": servers}))


def at(host: str, input_id: str = "api-key") -> Json:
    return {"url": f"https://{host}.example/mcp", "headers": {"X-Key": f"${{input:{input_id}}}"}}


def keys(merged: Merged) -> dict[str, str]:
    return {each.name: each.server.spec()["headers"]["X-Key"] for each in merged.taken if each.is_new}


def test_an_input_never_is_a_variable_that_is_there_for_something_else(home: Home) -> None:
    entry: Json = {"command": "npx", "args": ["server-fs", "${input:path}", "${input:home}"]}
    asking(home, "vscode", fs=entry)
    home = Home(home.folder, {"PATH": "/bin", "HOME": "/root"})
    merged = home.merged()
    assert merged.taken[0].server.spec()["args"] == ["server-fs", "${FS_PATH}", "${FS_HOME}"]
    found = [(each.name, each.input_id, each.input_places) for each in merged.variables]
    assert found == [("FS_PATH", "path", ("vscode",)), ("FS_HOME", "home", ("vscode",))]
    assert home.merged(kept={"FS_PATH": "x"}).variables[0].name == "FS_PATH_2"


def test_inputs_of_one_id_in_two_files_are_two(home: Home) -> None:
    asking(home, "vscode", mine=at("mine"), mine2=at("mine2"), mine3=at("mine3", "apiKey"))
    asking(home, "vscode-project", theirs=at("theirs"))
    merged = home.merged()
    assert keys(merged) == {
        "mine": "${API_KEY}",
        "mine2": "${API_KEY}",
        "mine3": "${MINE3_API_KEY}",
        "theirs": "${THEIRS_API_KEY}",
    }
    assert [(each.name, each.input_id, each.input_places) for each in merged.variables] == [
        ("API_KEY", "api-key", ("vscode",)),
        ("MINE3_API_KEY", "apiKey", ("vscode",)),
        ("THEIRS_API_KEY", "api-key", ("vscode-project",)),
    ]


@pytest.mark.parametrize(
    "other", [{"command": "hub", "env": {"API_KEY": "hunter2"}}, {"command": "${env:API_KEY}"}]
)
def test_an_input_shares_no_variable_with_a_secret_or_a_reference(home: Home, other: Json) -> None:
    home.servers("cursor", other=other)
    asking(home, "vscode", mine=at("mine"))
    assert home.merged().taken[1].server.spec()["headers"] == {"X-Key": "${MINE_API_KEY}"}


def test_an_input_shares_no_variable_with_what_the_manifest_has(home: Home) -> None:
    asking(home, "vscode", demo=at("demo"))
    assert keys(home.merged("upstreams: {a: {command: '${API_KEY}'}}")) == {"demo": "${DEMO_API_KEY}"}


def test_names_are_kept_and_told_as_they_are_read(home: Home) -> None:
    joined = "dev \U0001f469\u200d\U0001f4bb"
    home.servers(
        "cursor", **{joined: {"command": "1"}, "日本": {"command": "2"}, "a\u202eb": {"command": "3"}}
    )
    taken = home.taken()
    assert list(taken) == [joined, "server", "a_b"]
    assert [each.notes for each in taken.values()] == [
        (),
        ("called '日本' there",),
        (r"called 'a\u202eb' there",),
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [("it's\n", r"'it\'s\n'"), ("\\", r"'\\'"), ("é\ud800", r"'é\ud800'"), ("x" * 61, f"'{'x' * 60}'")],
)
def test_a_name_cannot_end_its_quotes(name: str, told: str) -> None:
    assert quoted(name) == told


def test_the_same_server_with_an_input_in_two_files_is_one(home: Home) -> None:
    asking(home, "vscode", mine=at("mine"))
    asking(home, "vscode-insiders", mine=at("mine"))
    merged = home.merged()
    assert keys(merged) == {"mine": "${API_KEY}"}
    assert [each.input_places for each in merged.variables] == [("vscode", "vscode-insiders")]


def test_a_server_with_an_input_is_found_in_the_manifest_whatever_is_set_by_now(home: Home) -> None:
    asking(home, "vscode", mine=at("mine"), fresh=at("fresh"))
    asking(home, "vscode-project", theirs=at("theirs"))
    existing = """
upstreams:
  mine: {url: "https://mine.example/mcp", headers: {X-Key: "${MY_KEY}"}}
  theirs: {url: "https://theirs.example/mcp", headers: {X-Key: "${MY_KEY}"}}
"""
    for environ in ({}, {"MY_KEY": "x"}):
        merged = Home(home.folder, environ).merged(existing)
        # What somebody is asked for in one file is no answer to what another asks for.
        assert keys(merged) == {"fresh": "${MY_KEY}", "theirs-vscode-project": "${API_KEY}"}
    other = existing.replace("${MY_KEY}", "plain")
    assert set(keys(home.merged(other))) == {"mine-vscode", "fresh", "theirs-vscode-project"}


def test_headers_that_differ_in_case_alone_are_no_defect_of_ours(home: Home) -> None:
    headers = {"X-A": "${env:A}", "x-a": "${env:B}"}
    home.servers("cursor", it={"url": "https://x.example/mcp", "headers": headers})
    assert len(home.merged().taken) + len(home.merged().left_out) == 1


STRANGE = {"url": "https://strange.example/mcp", "headers": {"X": "${GITHUB_TOKEN:-none}"}}


@pytest.mark.parametrize(
    ("existing", "kept"),
    [("", {"GITHUB_TOKEN": "ghp_1"}), ("upstreams: {git: {command: git, env: {T: '${GITHUB_TOKEN}'}}}", {})],
)
def test_a_reference_of_a_project_does_not_get_what_only_the_portal_has(
    home: Home, existing: str, kept: dict[str, str]
) -> None:
    home.servers("claude-code-project", strange=STRANGE)
    (taken,) = home.merged(existing, kept).taken
    assert taken.server.spec()["headers"] == {"X": "${STRANGE_GITHUB_TOKEN:-none}"}
    assert "STRANGE_GITHUB_TOKEN" in taken.notes[0]


def test_a_server_of_a_project_cannot_choose_a_name_that_gets_it_a_secret(home: Home) -> None:
    for name in ("github", "GITHUB_TOKEN", "git"):
        home.servers("claude-code-project", **{name: STRANGE})
        kept = {"GITHUB_TOKEN": "ghp_1", "GIT_GITHUB_TOKEN": "ghp_2"}
        (taken,) = home.merged(kept=kept).taken
        header = taken.server.spec()["headers"]["X"]
        assert not any(f"${{{name}:" in header or f"${{{name}}}" in header for name in kept)


def test_a_reference_keeps_its_variable_where_the_client_knows_it_or_the_file_is_the_users(
    home: Home,
) -> None:
    kept, header = {"GITHUB_TOKEN": "ghp_1"}, {"X": "${GITHUB_TOKEN:-none}"}
    home.servers("claude-code-project", strange=STRANGE)
    (taken,) = Home(home.folder, {"GITHUB_TOKEN": "ghp_2"}).merged(kept=kept).taken
    assert (taken.server.spec()["headers"], taken.notes) == (header, ())
    (taken,) = home.merged().taken
    assert taken.server.spec()["headers"] == header
    home.servers("claude-code", strange=STRANGE)
    (taken,) = home.merged(kept=kept).taken
    assert taken.server.spec()["headers"] == header


@pytest.mark.parametrize("text", ["${GITHUB_TOKEN:-none}", "Bearer ${GITHUB_TOKEN}"])
@pytest.mark.parametrize("own", [{}, {"STRANGE_GITHUB_TOKEN": "mine"}])
def test_a_server_whose_reference_has_a_name_of_its_own_is_found_again(
    home: Home, text: str, own: dict[str, str]
) -> None:
    home.servers("claude-code-project", strange={**STRANGE, "headers": {"X": text}})
    kept = {"GITHUB_TOKEN": "ghp_1"}
    (new,) = home.merged(kept=kept).taken
    existing = json.dumps({"upstreams": {"strange": new.server.spec()}})
    for environ, held in (({}, {**kept, **own}), (own, kept)):
        (taken,) = Home(home.folder, environ).merged(existing, held).taken
        assert not taken.is_new
