"""A script waits for upstreams that it could reach, and for no word of its texts."""

from pathlib import Path

import anyio
import pytest

from portal.awaited_names import awaited_names
from tests.portal.peers import DEADLINE_SECONDS, opened
from tests.portal.test_script_search import slow_and_quick

NAMESPACES = {"mail", "time", "files"}


def awaited(source: str) -> set[str]:
    return {*awaited_names(source, NAMESPACES, {"mail", "time"})}


@pytest.mark.parametrize(
    "source",
    [
        "await mail.send()",
        "x = mail",
        "import tools\nawait tools.mail.send()",
        "import tools as t\nawait t.mail.send()",
        "from tools import mail as m\nawait m.send()",
        "import mail",
        'import tools\nawait getattr(tools, "mail").send()',
        'import tools\nfor name in "files mail".split():\n    getattr(tools, name)',
        'import tools\nawait getattr(getattr(tools, ns), "send")(to="mail")',
        'import importlib\nimportlib.import_module("tools.mail")',
        'from importlib import import_module as load\nload("tools." + "mail")',
        '__import__("tools.mail.send")',
        'globals()["mail"]',
        'import tools\ntools.__dict__["mail"]',
        'import tools\ntools.__getattr__("mail")',
        """f"{(await mail.send(to="x"))}\"""",
        """import tools\nf"{getattr(tools, "mail")}\"""",
        'exec("await mail.send()")',
        'run = eval\nrun("mail" if x else "no mail")',
    ],
)
def test_script_that_may_reach_an_upstream_waits_for_it(source: str) -> None:
    assert "mail" in awaited(source)


@pytest.mark.parametrize(
    "source",
    [
        'import tools\nawait getattr(tools, "files").read()\nprint("no mail this time")',
        'import tools\n"""Reads files.\n\nNo mail."""',
        'import tools\nawait tools.files.read()\nrow["mail"]',
        'import tools\nx = [n for n in dir(tools)]\nprint("it took time")',
        'import importlib\nimportlib.import_module("json")\nprint("mail: none")',
        'globals()["x"] = "the mail"',
    ],
)
def test_script_that_only_speaks_of_an_upstream_does_not_wait_for_it(source: str) -> None:
    assert not awaited(source)


def test_script_that_cannot_be_read_waits_for_all_that_it_mentions() -> None:
    assert awaited("x" * 200_000) == {"mail", "time"}


@pytest.mark.anyio
async def test_word_in_a_text_has_no_run_wait_for_an_upstream_that_hangs(tmp_path: Path) -> None:
    script = 'import tools\nprint("not slow")\n"text" in str(await getattr(tools, "quick").echo(text="x"))'
    async with opened(
        tmp_path, slow_and_quick(tmp_path), server={"start_seconds": 2 * DEADLINE_SECONDS}
    ) as portal:
        await portal.search("echo", upstream="quick")
        await portal.run("1")  # the first waits for the sandbox
        with anyio.fail_after(DEADLINE_SECONDS):
            await portal.result_of(script)
