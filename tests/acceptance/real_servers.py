"""The real MCP servers of these tests: how a manifest names each, once scripts/servers has installed it."""

from pathlib import Path

from tests.acceptance.model import Json

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".cache/servers"
NPM = ROOT / ".cache/npm/node_modules"
CONFORMANCE = NPM / "@modelcontextprotocol/conformance"


def git(repository: Path) -> dict[str, Json]:
    return {"command": _python_program("git", "mcp-server-git"), "args": ["--repository", str(repository)]}


def time() -> dict[str, Json]:
    return {"command": _python_program("time", "mcp-server-time"), "args": ["--local-timezone", "UTC"]}


def fetch() -> dict[str, Json]:
    return {"command": _python_program("fetch", "mcp-server-fetch")}


def sqlite(database: Path) -> dict[str, Json]:
    return {"command": _python_program("sqlite", "mcp-server-sqlite"), "args": ["--db-path", str(database)]}


def excel(folder: Path) -> dict[str, Json]:
    program = _python_program("excel", "excel-mcp-server")
    return {"command": program, "args": ["stdio"], "env": {"EXCEL_FILES_PATH": str(folder)}}


def redis(port: int) -> dict[str, Json]:
    program = _python_program("redis", "redis-mcp-server")
    return {"command": program, "args": ["--url", f"redis://127.0.0.1:{port}/0"]}


def everything() -> dict[str, Json]:
    return _npm_server("everything")


def filesystem(folder: Path) -> dict[str, Json]:
    return _npm_server("filesystem", str(folder))


def memory(file: Path) -> dict[str, Json]:
    return {**_npm_server("memory"), "env": {"MEMORY_FILE_PATH": str(file)}}


def sequential_thinking() -> dict[str, Json]:
    return _npm_server("sequential-thinking")


def popular(folder: Path) -> dict[str, dict[str, Json]]:
    """Ten servers that people use and that need no account to start, on the SDKs of Python, TypeScript and Go."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: none, users: [{name: nobody, user: {}}],"
        " clusters: [{name: none, cluster: {server: 'http://127.0.0.1:9'}}],"
        " contexts: [{name: none, context: {cluster: none, user: nobody}}]}"
    )
    documents = folder / "documents"  # of its own: it writes files, and the manifest is no document
    documents.mkdir(exist_ok=True)
    return {
        "calculator": {"command": _python_program("popular", "mcp-server-calculator")},
        "modeling": {"command": _python_program("popular", "mcp-neo4j-data-modeling")},
        "word": {"command": _python_program("popular", "word_mcp_server"), "cwd": str(documents)},
        "obsidian": {
            "command": _python_program("popular", "mcp-obsidian"),
            "env": {"OBSIDIAN_API_KEY": "none", "OBSIDIAN_HOST": "127.0.0.1", "OBSIDIAN_PORT": "9"},
        },
        "runner": _node_program("mcp-server-code-runner/dist/cli.js"),
        "chart": _node_program("@antv/mcp-server-chart/build/index.js"),
        "drawio": _node_program("@drawio/mcp/src/index.js"),
        "tavily": {**_node_program("tavily-mcp/build/index.js"), "env": {"TAVILY_API_KEY": "none"}},
        "circleci": _node_program("@circleci/mcp-server-circleci/dist/index.js"),
        "cluster": {
            "command": _installed(
                NPM / "kubernetes-mcp-server-linux-amd64/bin/kubernetes-mcp-server-linux-amd64"
            ),
            "env": {"KUBECONFIG": str(kubeconfig)},
        },
    }


def inspector_command() -> list[str]:
    """How to start the MCP Inspector."""
    return [_node(), _installed(NPM / ".bin/mcp-inspector")]


def conformance_suite() -> list[str]:
    """How to start the conformance suite of the MCP project."""
    return [_node(), _installed(CONFORMANCE / "dist/index.js")]


def identity_provider(port: int, audience: str, token_format: str) -> list[str]:
    """How to start the identity provider of npm's oidc-provider, whose access tokens are for this audience."""
    script = Path(__file__).with_name("servers") / "identity_provider.mjs"
    return [_node(), str(script), _installed(NPM), str(port), audience, token_format]


def people_provider(port: int, audience: str, redirect_uri: str) -> list[str]:
    """The same for people, who sign in on its own forms; its client `portal` has this redirect URI."""
    script = Path(__file__).with_name("servers") / "people_provider.mjs"
    return [_node(), str(script), _installed(NPM), str(port), audience, redirect_uri]


def workers_provider(port: int, redirect_uri: str) -> list[str]:
    """How to start an MCP server behind npm's @cloudflare/workers-oauth-provider, with a client that has this URI."""
    script = Path(__file__).with_name("servers") / "workers_provider.mjs"
    return [_node(), str(script), _installed(NPM), str(port), redirect_uri]


def sdk1_python(release: str = "sdk1") -> str:
    """A Python whose `mcp` is the last release of the SDK's first major version, or an older one, such as sdk1_2."""
    return _python_program(release, "python")


def _python_program(server: str, program: str) -> str:
    return _installed(INSTALLED / server / "bin" / program)


def _npm_server(name: str, *args: str) -> dict[str, Json]:
    return _node_program(f"@modelcontextprotocol/server-{name}/dist/index.js", *args)


def _node_program(script: str, *args: str) -> dict[str, Json]:
    return {"command": _node(), "args": [_installed(NPM / script), *args]}


def _node() -> str:
    return _installed(INSTALLED / "node/bin/node")


def _installed(path: Path) -> str:
    assert path.exists(), (
        f"{path.relative_to(ROOT)} is missing: run scripts/servers --all, for tests of a release --release"
    )
    return str(path)
