"""The pages for newcomers work as printed: quickstarts, troubleshooting, and what a model is told."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.documentation.test_snippets import ROOT, tickets
from tests.portal.peers import opened

QUICKSTARTS = sorted((ROOT / "docs/quickstart").glob("*.md"))
TROUBLES = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
FOR_MODELS = (ROOT / "docs/for-models.md").read_text("utf-8")

MESSAGES = (
    "was not found on PATH|cannot be read: |was not ready within|sent text that is |The script did not run.",
    "its stderr ended with|preparing the sandbox for this machine, once| not get it: write it to defaults",
    ", trusting |; NO_PROXY names hosts that need none|was denied|waits, because it was made while",
    "the environment variable |no upstreams are configured, so there are no functions|is not allowed by server.",
    "because portal.lock does not accept them|was edited, or is a merge conflict|cannot listen on ",
    "refusing to listen on |a bearer token is required",
)


async def test_the_script_that_models_are_shown_runs(tmp_path: Path) -> None:
    text = FOR_MODELS.partition("````markdown")[2]
    (script,) = re.findall(r"(?ms)^```python\n(.*?)^```", text)
    async with opened(tmp_path, {"tickets": tickets()}) as portal:
        answer = await portal.run(script)
    assert (answer["status"], answer["notices"]) == ("ok", []), answer
    assert answer["result"] == {"open": 2, "owners": ["ann"], "failed": []}
    assert len(text.split()) <= 250


def test_setup_finds_an_interpreter_in_a_folder_with_a_space(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("setup", "steps.bash"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    old = tmp_path / "my python"
    old.write_text("#!/bin/sh\necho Python 2.7.18; exit 1\n")
    old.chmod(0o700)
    environ = {**os.environ, "PYTHON": str(old)}
    done = subprocess.run(
        [tmp_path / "scripts/setup"], env=environ, capture_output=True, text=True, check=False
    )
    assert f"{old} is Python 2.7.18" in done.stderr


def test_quickstarts_begin_alike_and_undo_what_they_install() -> None:
    texts = [page.read_text("utf-8") for page in QUICKSTARTS]
    assert len(texts) == 6
    assert len({re.findall(r"(?ms)^```sh\n(.*?)^```", text)[0] for text in texts}) == 1
    for text in texts:
        installed, undone = re.findall(r"(?m)^mcp-code-portal import --(?:install|undo) (\S+)", text)
        assert installed == undone


def test_troubleshooting_quotes_messages_of_the_product() -> None:
    folders = ("portal", "upstreams", "manifests", "sandbox_runtime")
    source = "\n".join(path.read_text("utf-8") for each in folders for path in (ROOT / each).rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", source)
    for message in "|".join(MESSAGES).split("|"):
        assert message in TROUBLES, message
        assert message in joined, message
