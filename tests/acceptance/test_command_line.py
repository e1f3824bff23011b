"""The commands a person debugs a set-up with, as processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.portal_process import write_manifest
from tests.warm_commands import warm_command

COMMAND_SECONDS = 90
LISTING_SERVER = str(Path(__file__).parent / "peers/listing_server.py")
WAITING_SERVER = str(Path(__file__).parent / "peers/waiting_server.py")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command_line")
    tools = [{"name": "get_current_time", "description": "Get the current time in a timezone."}]
    (folder / "time.json").write_text(json.dumps(tools))
    upstreams = {
        "time": {"command": sys.executable, "args": [LISTING_SERVER, str(folder / "time.json")]},
        "waiting": {"command": sys.executable, "args": [WAITING_SERVER]},
    }
    return write_manifest(folder, upstreams)


def test_version_is_told() -> None:
    assert portal("--version").stdout.startswith("mcp-code-portal 0.")


@pytest.mark.parametrize("command", ["serve", "run", "search", "stubs", "check", "import", "schema"])
def test_every_command_has_a_help_text(command: str) -> None:
    done = portal(command, "--help")
    assert done.returncode == 0
    assert "--config" in done.stdout


def test_run_prints_value_on_stdout_and_ledger_on_stderr(manifest: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('hello')\nawait waiting.double(number=21)\n")
    done = portal("run", str(script), "--config", str(manifest))
    assert (done.returncode, done.stdout) == (0, "hello\n42\n")
    assert "waiting.double" in done.stderr


def test_run_reads_a_script_from_stdin_and_answers_json(manifest: Path) -> None:
    done = portal("run", "-", "--json", "--config", str(manifest), stdin="await waiting.double(number=2)")
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["result"]) == ("ok", 4)
    assert [call["function"] for call in answer["calls"]] == ["waiting.double"]


def test_run_of_a_failing_script_exits_with_1_and_says_why(manifest: Path) -> None:
    done = portal("run", "-", "--config", str(manifest), stdin="{}['tea']")
    assert (done.returncode, done.stdout) == (1, "")
    assert "KeyError" in done.stderr


def test_run_works_without_any_manifest(tmp_path: Path) -> None:
    done = portal("run", "-", stdin="sum(range(10))", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "45\n")


def test_search_finds_functions(manifest: Path) -> None:
    done = portal("search", "current time", "--config", str(manifest))
    assert done.returncode == 0
    assert "time_.get_current_time" in done.stdout


def test_search_answers_json(manifest: Path) -> None:
    done = portal("search", "current time", "--limit", "1", "--json", "--config", str(manifest))
    (function,) = json.loads(done.stdout)["functions"]
    assert function["name"] == "time_.get_current_time"


def test_search_of_an_upstream_that_is_not_there_fails(manifest: Path) -> None:
    done = portal("search", "time", "--upstream", "tiem", "--json", "--config", str(manifest))
    assert done.returncode == 1
    assert json.loads(done.stdout)["functions"] == []
    assert "there is no upstream 'tiem'" in done.stdout


def test_search_works_without_any_manifest(tmp_path: Path) -> None:
    done = portal("search", cwd=tmp_path)
    assert done.returncode == 0
    assert "portal.yaml" in done.stdout + done.stderr


def test_stubs_are_python_that_compiles(manifest: Path, tmp_path: Path) -> None:
    assert portal("stubs", "--out", str(tmp_path), "--config", str(manifest)).returncode == 0
    names = {path.name for path in (tmp_path / "tools").iterdir()}
    assert names == {"__init__.pyi", "py.typed", "time_.pyi", "waiting.pyi"}
    for stub in tmp_path.glob("tools/*.pyi"):
        compile(stub.read_text(), stub.name, "exec")


def test_stubs_of_one_namespace_go_to_stdout(manifest: Path) -> None:
    done = portal("stubs", "waiting", "--config", str(manifest))
    assert "async def double(" in done.stdout
    assert "get_current_time" not in done.stdout


def test_stubs_of_an_unknown_namespace_are_an_error(manifest: Path) -> None:
    done = portal("stubs", "wating", "--config", str(manifest))
    assert done.returncode != 0
    assert "waiting" in done.stderr


def test_check_of_a_good_setup_exits_with_0(manifest: Path) -> None:
    done = portal("check", "--json", "--config", str(manifest))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["name"]: row["status"] for row in json.loads(done.stdout)["upstreams"]} == {
        "time": "ready",
        "waiting": "ready",
    }


def test_check_tells_every_problem_of_the_upstreams_at_once(tmp_path: Path) -> None:
    upstreams = {"one": {"command": "no-such-program"}, "two": {"url": "http://127.0.0.1:9/mcp"}}
    done = portal("check", "--config", str(write_manifest(tmp_path, upstreams)))
    assert done.returncode == 1
    assert "no-such-program" in done.stdout + done.stderr
    assert "two" in done.stdout + done.stderr


def test_check_tells_every_problem_of_the_manifest_with_its_place(tmp_path: Path) -> None:
    manifest = tmp_path / "portal.yaml"
    manifest.write_text(
        "upstream: {}\nserver:\n  output_tokens: many\n  token: ${NO_SUCH_VARIABLE_ANYWHERE}\n"
    )
    done = portal("check", "--config", str(manifest))
    assert done.returncode != 0
    assert "portal.yaml:1:1" in done.stderr
    assert "portal.yaml:3:18" in done.stderr
    assert "NO_SUCH_VARIABLE_ANYWHERE" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_manifest_is_an_error_that_names_it(tmp_path: Path) -> None:
    done = portal("check", "--config", str(tmp_path / "portal.yaml"))
    assert done.returncode != 0
    assert "portal.yaml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["search", "time"], ["check"]])
def test_no_colours_without_a_terminal(manifest: Path, arguments: list[str]) -> None:
    done = portal(*arguments, "--config", str(manifest))
    assert "\x1b[" not in done.stdout + done.stderr


def portal(*arguments: str, stdin: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MCP_CODE_PORTAL_CONFIG"}
    return subprocess.run(
        [*warm_command(), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        cwd=cwd,
        env=environment,
    )
