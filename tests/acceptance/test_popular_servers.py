"""Ten servers that people use, behind one portal: all start, list their tools, and give no cause for a warning."""

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance import real_servers
from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import COMMAND, stdio_model, write_manifest

pytestmark = [pytest.mark.anyio, pytest.mark.servers, pytest.mark.release]

CHECK_SECONDS = 120


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("popular")
    granted: Json = {"tools": {"allow": ["*", "word.create_document"]}}
    return write_manifest(folder, real_servers.popular(folder), capabilities=granted)


@pytest.fixture(scope="module")
async def model(manifest: Path) -> AsyncIterator[Model]:
    async with stdio_model(manifest) as model:
        yield model


def test_check_finds_nothing_to_warn_of(manifest: Path) -> None:
    command = [COMMAND, "check", "--json", "--config", str(manifest)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_SECONDS, check=False)
    found = json.loads(done.stdout)
    assert {each["name"]: each["status"] for each in found["upstreams"]} == dict.fromkeys(
        real_servers.popular(manifest.parent), "ready"
    )
    assert (found["errors"], found["warnings"]) == ([], [])


async def test_script_works_with_them(model: Model, manifest: Path) -> None:
    script = """
sum_ = await calculator.calculate(expression="6 * 7")
made = await word.create_document(filename="tea.docx", title="Tea")
printed = await runner.run_code(languageId="javascript", code="console.log(6 * 7)")
[str(sum_), made, printed]
"""
    sum_, _, printed = await model.result_of(script)
    assert "42" in sum_ and "42" in printed
    assert (manifest.parent / "documents" / "tea.docx").exists()


async def test_network_that_fails_behind_a_server_is_not_the_scripts_fault(model: Model) -> None:
    run = await model.run("await obsidian.obsidian_list_files_in_vault()")
    assert run["error"]["code"] in ("tool_error", "upstream_refused")
    assert "signature" not in run["error"].get("hint", "").lower()
