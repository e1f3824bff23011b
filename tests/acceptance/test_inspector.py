"""The MCP Inspector, the client that server authors use, in its command-line mode over both transports."""

import json
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from tests.acceptance import real_servers
from tests.acceptance.model import Json
from tests.acceptance.portal_process import COMMAND, http_portal, write_manifest

pytestmark = pytest.mark.servers

INSPECTOR_SECONDS = 100


@pytest.fixture(scope="module", params=["stdio", "http"])
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[str]]:
    """The target that the Inspector connects to."""
    manifest = write_manifest(tmp_path_factory.mktemp("inspector"), {"time": real_servers.time()})
    if request.param == "stdio":
        # The Inspector takes everything up to its own first option for the server's command line.
        yield ["env", f"MCP_CODE_PORTAL_CONFIG={manifest}", COMMAND, "serve"]
    else:
        with http_portal(manifest) as portal:
            yield [portal.url, "--transport", "http"]


def test_lists_both_tools_and_finds_no_fault_in_their_schemas(target: Sequence[str]) -> None:
    tools = inspector(target, "--method", "tools/list", "--strict")["tools"]
    assert [tool["name"] for tool in tools] == ["docs_search", "execute_code"]


@pytest.mark.release
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_calls_docs_search(target: Sequence[str], era: str) -> None:
    answer = call(target, "docs_search", "query=current time", "limit=1", era=era)
    assert [function["name"] for function in answer["functions"]] == ["time_.get_current_time"]


@pytest.mark.parametrize("era", [pytest.param("legacy", marks=pytest.mark.release), "modern"])
def test_calls_execute_code(target: Sequence[str], era: str) -> None:
    code = "code=(await time_.get_current_time(timezone='UTC'))['timezone']"
    answer = call(target, "execute_code", code, era=era)
    assert (answer["status"], answer["result"]) == ("ok", "UTC")


def call(target: Sequence[str], tool: str, *arguments: str, era: str) -> dict[str, Json]:
    given = [word for argument in arguments for word in ("--tool-arg", argument)]
    options = ("--method", "tools/call", "--tool-name", tool, *given, "--protocol-era", era)
    structured: dict[str, Json] = inspector(target, *options)["structuredContent"]
    return structured


def inspector(target: Sequence[str], *options: str) -> dict[str, Json]:
    done = subprocess.run(
        [*real_servers.inspector_command(), "--cli", *target, *options, "--connect-timeout", "60000"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSPECTOR_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    answer: dict[str, Json] = json.loads(done.stdout)
    return answer
