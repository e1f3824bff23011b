"""Entries of the seven clients, and what a manifest says for each."""

import json

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.upstream_sections import HttpUpstream
from portal.client_files.entries import is_portal
from portal.client_files.target import Target
from tests.portal.client_files.homes import Home

RUN: dict[str, Json] = {"command": "node", "args": ["x"]}
AT: dict[str, Json] = {"url": "https://x.example/mcp"}


def test_command_arguments_and_variables_are_taken_over(home: Home) -> None:
    entry: Json = {
        "command": "npx",
        "args": ["-y", "server", 8080],
        "env": {"A": "b", "N": 1, "T": True, "Z": None},
    }
    assert home.spec("claude-desktop", {**entry, "type": "stdio"}) == {
        "command": "npx",
        "args": ["-y", "server", "8080"],
        "env": {"A": "b", "N": "1", "T": "true"},
    }


def test_codex_names_variables_in_fields(home: Home) -> None:
    home.write(
        "codex",
        """
        [mcp_servers.a]
        command = "x"
        args = ["${A}"]
        env_vars = ["FIRST", {name = "SECOND", source = "local"}]
        enabled_tools = ["read*"]
        disabled_tools = ["b"]
        startup_timeout_sec = 20

        [mcp_servers.a.env]
        C = "d"

        [mcp_servers.b]
        url = "https://x.example/mcp"
        bearer_token_env_var = "B_TOKEN"
        http_headers = {X-Region = "eu"}
        env_http_headers = {X-Key = "B_KEY"}

        [mcp_servers.off]
        command = "x"
        enabled = false
        """,
    )
    merged = home.merged()
    assert [each.server.spec() for each in merged.taken] == [
        {
            "command": "x",
            "args": ["$${A}"],
            "env": {"C": "d", "FIRST": "${FIRST}", "SECOND": "${SECOND}"},
            "tools": {"allow": ["read[*]"], "deny": ["b"]},
        },
        {
            "url": "https://x.example/mcp",
            "headers": {"X-Region": "eu", "X-Key": "${B_KEY}", "Authorization": "Bearer ${B_TOKEN}"},
        },
    ]
    assert [each.origins[0].line for each in merged.taken] == [2, 13]
    assert "startup_timeout_sec" in "".join(merged.taken[0].notes)
    assert [out.origin.name for out in merged.left_out] == ["off"]


@pytest.mark.parametrize(
    ("client", "entry", "transport"),
    [
        ("cursor", {"url": "https://x.example/mcp"}, None),
        ("cursor", {"url": "https://x.example/sse?a=b"}, "sse"),
        ("cursor", {"url": "https://x.example/sse", "type": "http"}, None),
        ("vscode", {"url": "https://x.example/mcp", "type": "sse"}, "sse"),
        ("claude-code", {"url": "https://x.example/mcp", "type": "streamable-http"}, None),
        ("claude-code", {"url": "https://x.example/mcp", "transport": "streamableHttp"}, None),
        ("windsurf", {"serverUrl": "https://x.example/mcp"}, None),
        ("gemini", {"url": "https://x.example/events"}, "sse"),
        ("gemini", {"url": "https://x.example/mcp", "type": "http"}, None),
        ("gemini", {"httpUrl": "https://x.example/mcp"}, None),
    ],
)
def test_the_transport_is_told(home: Home, client: str, entry: Json, transport: str | None) -> None:
    spec = home.spec(client, entry)
    assert spec.get("transport") == transport and str(spec["url"]).startswith("https://x.example/")


@pytest.mark.parametrize(
    ("client", "entry", "oauth"),
    [
        ("cursor", {**AT, "auth": {"CLIENT_ID": "x", "scopes": ["a", "b"]}}, {"scope": "a b"}),
        ("gemini", {"httpUrl": "https://x.example/mcp", "oauth": {"enabled": True, "clientSecret": "x"}}, {}),
        ("claude-code", {**AT, "type": "http", "oauth": {"clientId": "x"}}, {}),
        ("claude-code", {"url": "http://127.0.0.1:1/mcp", "oauth": {"clientId": "x"}}, {}),
        ("gemini", {"httpUrl": "https://x.example/mcp", "oauth": {"enabled": False}}, None),
        ("cursor", {"url": "http://x.example/mcp", "auth": {"CLIENT_ID": "x"}}, None),
        ("cursor", {**AT, "headers": {"authorization": "Bearer ${env:A}"}, "auth": {"CLIENT_ID": "x"}}, None),
        ("cursor", AT, None),
    ],
)
def test_where_the_client_signs_in_the_portal_does_by_itself(
    home: Home, client: str, entry: Json, oauth: Json
) -> None:
    assert home.spec(client, entry).get("oauth") == oauth
    target = Target.at(home.folder / "portal.yaml")
    target.write(target.text(home.merged().taken, home.folder))
    (upstream,) = load_manifest(target.manifest.path, {"A": "x"}).portal.upstreams.values()
    assert isinstance(upstream, HttpUpstream) and (upstream.oauth is None) == (oauth is None)


def test_filters_of_gemini_are_taken_over(home: Home) -> None:
    spec = home.spec("gemini", {**RUN, "includeTools": ["a"], "excludeTools": ["b[1]"]})
    assert spec["tools"] == {"allow": ["a"], "deny": ["b[[]1]"]}


def test_what_a_filter_grants_is_told(home: Home) -> None:
    home.servers("gemini", it={**RUN, "includeTools": ["read", *(f"t{n}" for n in range(30))]})
    (note,) = home.merged().taken[0].notes
    assert "'read'" in note and "'t18'" in note and "'t19'" not in note and "11 more" in note


def test_filters_say_nothing_that_only_a_manifest_would_fill_in(home: Home) -> None:
    names = ["search", "${command:touch pwned}", "${keyring:a/b}"]
    spec = home.spec("gemini", {**AT, "includeTools": names, "excludeTools": names[1:]})
    escaped = ["$${command:touch pwned}", "$${keyring:a/b}"]
    assert spec["tools"] == {"allow": ["search", *escaped], "deny": escaped}


@pytest.mark.parametrize(
    ("client", "name"), [("gemini", "${API_KEY}"), ("gemini", "$API_KEY"), ("cursor", "${env:API_KEY}")]
)
def test_filters_with_variables_are_not_taken_over(home: Home, client: str, name: str) -> None:
    assert "variable" in home.reason(client, {**RUN, "excludeTools": [name]})


def test_filters_of_clients_without_variables_are_texts(home: Home) -> None:
    spec = home.spec("claude-desktop", {**RUN, "excludeTools": ["${API_KEY}", "$API_KEY"]})
    assert spec["tools"] == {"deny": ["$${API_KEY}", "$API_KEY"]}


@pytest.mark.parametrize(
    "key", ["autoApprove", "alwaysAllow", "timeout", "envFile", "sandboxEnabled", "oauth", "dev"]
)
def test_what_is_not_taken_over_is_told(home: Home, key: str) -> None:
    home.servers("vscode", it={**RUN, key: "x"})
    (taken,) = home.merged().taken
    assert taken.server.spec() == RUN and key in "".join(taken.notes)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"auth": {"scopes": ["a", "b"]}}, []),
        ({"oauth": {"enabled": True}}, []),
        ({"auth": "oauth"}, []),
        ({"scopes": ["a"]}, []),
        ({"oauth": {"clientSecret": "x", "scopes": ["a"]}}, ["not taken over: 'oauth.clientSecret'"]),
        ({"oauth": {"scopes": ["a" * 3000]}, "dev": 1}, ["not taken over: 'scopes', 'dev'"]),
    ],
)
def test_of_a_sign_in_only_what_is_left_is_told(home: Home, entry: dict[str, Json], told: Json) -> None:
    home.servers("cursor", it={**AT, **entry})
    (taken,) = home.merged().taken
    assert "oauth" in taken.server.spec() and list(taken.notes) == told


def test_what_changes_nothing_is_not_told(home: Home) -> None:
    home.servers("windsurf", it={**RUN, "disabled": False, "description": "x"})
    assert home.merged().taken[0].notes == ()


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        ("windsurf", {**RUN, "disabled": True}),
        ("cursor", {**RUN, **AT}),
        ("cursor", {}),
        ("cursor", {"command": " "}),
        ("cursor", {"command": None}),
        ("cursor", {"command": "npx -y server --token abc"}),
        ("cursor", {"command": "/usr/bin/x --token abc"}),
        ("cursor", []),
        ("cursor", "npx x"),
        ("cursor", None),
        ("cursor", {"command": 1}),
        ("cursor", {"command": ["x"]}),
        ("cursor", {"command": "x", "args": "y"}),
        ("cursor", {"command": "x", "args": [["y"]]}),
        ("cursor", {"command": "x", "args": ["a"] * 1001}),
        ("cursor", {"command": "x", "args": ["a" * 40_000]}),
        ("cursor", {"command": "x", "args": ["a\0b"]}),
        ("cursor", {"command": "x", "args": ["\ud800"]}),
        ("cursor", {"command": "x", "env": ["A=b"]}),
        ("cursor", {"command": "x", "env": {"A": {}}}),
        ("cursor", {"command": "x", "env": {"A=B": "c"}}),
        ("cursor", {"command": "x", "env": {"": "c"}}),
        ("cursor", {"command": "x", "cwd": "${env:A}"}),
        ("cursor", {"url": "file:///etc/passwd"}),
        ("cursor", {"url": "javascript:alert(1)"}),
        ("cursor", {"url": "https://x .example"}),
        ("cursor", {"url": "http://[::1"}),
        ("cursor", {**AT, "headers": {"A: b": "c"}}),
        ("cursor", {**AT, "headers": {"A": "b\r\nC: d"}}),
        ("cursor", {**AT, "headers": "A: b"}),
        ("vscode", {"url": "unix:///tmp/x.sock"}),
        ("vscode", {**AT, "type": "ws"}),
        ("claude-code", {**AT, "headersHelper": "/bin/x"}),
        ("claude-code", {**AT, "type": 3}),
    ],
)
def test_what_cannot_be_taken_over_has_a_reason(home: Home, client: str, entry: Json) -> None:
    home.servers(client, it=entry, fine=RUN)
    merged = home.merged()
    assert [out.origin.name for out in merged.left_out] == ["it"] and merged.left_out[0].reason
    assert [each.name for each in merged.taken] == ["fine"]


@pytest.mark.parametrize(
    "words",
    [
        ["mcp-code-portal", "serve"],
        ["/opt/x/bin/mcp-code-portal", "serve", "--config", "p.yaml"],
        ["C:\\bin\\mcp-code-portal.exe"],
        ["uvx", "mcp-code-portal@0.1.0", "serve"],
        ["uvx", "--from", "mcp-code-portal[bake]==0.1", "mcp-code-portal"],
        ["python", "-m", "portal", "serve"],
        ["docker", "run", "-i", "ghcr.io/someone/mcp-code-portal:latest"],
        ["sudo", "podman", "run", "-i", "someone/mcp-code-portal"],
        ["python", "/opt/x/bin/mcp-code-portal", "--version"],
        ["wsl", "-e", "/src/mcp-code-portal", "serve"],
    ],
)
def test_the_portal_itself_is_left_out(home: Home, words: list[str]) -> None:
    assert is_portal(words[0], words[1:])
    assert "itself" in home.reason("cursor", {"command": words[0], "args": words[1:]})


@pytest.mark.parametrize(
    "words",
    [
        ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/me/src/mcp-code-portal"],
        ["uvx", "mcp-server-git", "--repository", "C:\\src\\mcp-code-portal"],
        ["uvx", "mcp-server-git", "--repository", "src/mcp-code-portal"],
        ["docker", "run", "-i", "-v", "sources:/src/mcp-code-portal", "mcp/filesystem"],
        ["docker", "run", "--mount", "type=bind,src=/src/mcp-code-portal", "mcp/filesystem"],
        ["my-mcp-code-portal"],
        ["x", "portal"],
        ["python", "-m", "portals"],
        ["x", "-m"],
    ],
)
def test_others_are_not_taken_for_the_portal(words: list[str]) -> None:
    assert not is_portal(words[0], words[1:])


def test_relative_paths_of_a_project_begin_in_its_folder(home: Home) -> None:
    (home.project / "server.py").touch()
    for entry in (
        {"command": "./x"},
        {"command": "python", "args": ["server.py"]},
        {"command": "x", "args": ["."]},
    ):
        assert home.spec("cursor-project", entry)["cwd"] == str(home.project)
    assert "cwd" not in home.spec(
        "cursor-project", {"command": "python", "args": ["-m", "server", "/x", "none.py"]}
    )
    assert home.spec("cursor-project", {"command": "x", "cwd": "sub"})["cwd"] == f"{home.project}/sub"
    assert home.spec("cursor-project", {"command": "x", "cwd": "/sub"})["cwd"] == "/sub"


def test_claude_code_keeps_projects_in_the_users_file(home: Home) -> None:
    home.write(
        "claude-code",
        """{"numStartups": 3, "mcpServers": {"a": {"command": "a"}}, "projects": {
        "/p": {"mcpServers": {"b": {"command": "./b"}, "c": {"command": "c"}}, "disabledMcpServers": ["c"]},
        "/q": {"history": []}, "/r": {"mcpServers": null}, "/s": 1}}""",
    )
    merged = home.merged()
    specs = {each.name: each.server.spec() for each in merged.taken}
    assert specs == {"a": {"command": "a"}, "b": {"command": "./b", "cwd": "/p"}}
    assert [out.origin.name for out in merged.left_out] == ["c"]


@pytest.mark.parametrize(
    ("rules", "taken", "why"),
    [
        ('"mcp": {"excluded": ["b"]}', ["a"], "(mcp.excluded)"),
        ('"mcp": {"allowed": ["b"]}', ["b"], "(mcp.allowed "),
        ('"excludeMCPServers": ["b"]', ["a"], "(excludeMCPServers)"),
        ('"allowMCPServers": ["b"]', ["b"], "(allowMCPServers "),
        ('"allowMCPServers": ["a", "b"], "mcp": {"excluded": ["a"]}', ["b"], "(mcp.excluded)"),
        ('"allowMCPServers": null, "excludeMCPServers": null', ["a", "b"], ""),
    ],
)
def test_gemini_turns_servers_off_by_name(home: Home, rules: str, taken: list[str], why: str) -> None:
    servers = '"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}'
    home.write("gemini", f"{{{servers}, {rules}}}")
    assert list(home.taken()) == taken
    assert all(why in out.reason for out in home.merged().left_out)


@pytest.mark.parametrize(
    "line",
    [
        'bearer_token_env_var = "ghp_abcdefghijklmnop1234"',
        'bearer_token_env_var = "sk-proj-abc123def456ghi789"',
        'env_http_headers = {"X-Key" = "q7Fz3kR9vB2xM5tL8wNd"}',
        'env_http_headers = {"X-Key" = "hunter2-q7F"}',
    ],
)
def test_a_token_in_place_of_a_variables_name_is_shown_to_nobody(home: Home, line: str) -> None:
    home.write("codex", f'[mcp_servers.it]\nurl = "https://x.example/mcp"\n{line}\n')
    (out,) = home.merged().left_out
    assert not any(token in out.reason for token in ("ghp_", "sk-", "q7F"))
    home.write(
        "codex",
        '[mcp_servers.it]\nurl = "https://x.example/mcp"\nbearer_token_env_var = "MYCOMPANYACCESSTOKEN2"\n',
    )
    (taken,) = home.merged().taken
    assert taken.server.spec()["headers"] == {"Authorization": "Bearer ${MYCOMPANYACCESSTOKEN2}"}


@pytest.mark.parametrize(
    ("file", "is_of_project"),
    [
        (".claude.json", True),
        (".claude/settings.json", False),
        ("work/.claude/settings.json", False),
        ("work/.claude/settings.local.json", False),
    ],
)
@pytest.mark.parametrize("key", ["disabledMcpjsonServers", "disabledMcpServers"])
def test_a_server_of_the_project_that_was_refused_in_claude_code_is_left_out(
    home: Home, file: str, is_of_project: bool, key: str
) -> None:
    home.servers("claude-code-project", refused={"command": "./x"}, fine={"command": "y"})
    said: Json = {key: ["refused"]}
    path = home.folder / file
    path.parent.mkdir(exist_ok=True)
    elsewhere = {"projects": {"/elsewhere": {key: ["fine"]}}}
    path.write_text(
        json.dumps({"projects": {str(home.project): said}} if is_of_project else said | elsewhere)
    )
    merged = home.merged()
    assert [each.name for each in merged.taken] == ["fine"]
    assert [each.origin.name for each in merged.left_out] == ["refused"]


def test_a_file_of_refusals_that_cannot_be_read_keeps_the_projects_servers_out(home: Home) -> None:
    home.servers("claude-code-project", x={"command": "x"})
    home.servers("cursor", y={"command": "y"})
    path = home.folder / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text("{\n]")
    assert list(home.taken()) == ["y"]
    problem = home.contents()["claude-code-project"].problem
    assert problem is not None and (problem.path, problem.line) == (path, 2)
