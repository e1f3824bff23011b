"""Python inside is Python; its packages work, are those that were chosen, and are documented with their licences."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.names import namespace_of
from sandbox_runtime import build_guest
from sandbox_runtime.build_guest import PACKAGES
from tests.sandbox_runtime.running import Runner

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/python.md").read_text("utf-8")


def column(heading: str, number: int) -> list[str]:
    """The cells of one column of the first table below a heading of docs/python.md, without the table's own heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None
    return [line.split("|")[number].strip() for line in table[0].splitlines()[2:]]


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("import yaml\nyaml.safe_load('a: [1, x, 2026-01-02]')['a'][:2]", [1, "x"]),
        ("from jinja2 import Environment, DictLoader\nloader = DictLoader({'a': 'A{% block b %}{% endblock %}', "
         "'b': '{% extends \"a\" %}{% block b %}B{% endblock %}'})\n"
         "Environment(loader=loader).get_template('b').render()", "AB"),
        ("import jinja2\nawait jinja2.Template('{{ x }}', enable_async=True).render_async(x=1)", "1"),
        ("from markupsafe import escape\nstr(escape('<'))", "&lt;"),
        ("from dateutil import parser\nparser.parse('3 Jan 2026 5pm').isoformat()", "2026-01-03T17:00:00"),
        ("import datetime\nfrom dateutil import tz\n"
         "datetime.datetime(2026, 7, 1, tzinfo=tz.gettz('America/New_York')).utcoffset().total_seconds()", -14400.0),
        ("from tabulate import tabulate\ntabulate([[1, 'x']], headers=['a', 'b'], tablefmt='github')",
         "|   a | b   |\n|-----|-----|\n|   1 | x   |"),
        ("import jmespath\njmespath.search('a[?b > `1`].c', {'a': [{'b': 1, 'c': 2}, {'b': 2, 'c': 3}]})", [3]),
        ("from importlib.metadata import version\n[version('pyyaml'), version('more_itertools')]", ["6.0.3", "11.2.1"]),
        ("import importlib.resources as r\nfolder = r.files('tzdata') / 'zoneinfo' / 'Europe'\n"
         "folder.is_dir(), (folder / 'Berlin').read_bytes()[:4].decode(), folder.joinpath('x').is_file()",
         [True, "TZif", False]),
        ("import pkgutil\ntry:\n    pkgutil.get_data('tzdata', '../../etc/passwd')\nexcept FileNotFoundError as e:\n"
         "    x = type(e).__name__\nx", "FileNotFoundError"),
    ],
)  # fmt: skip
async def test_package_works(run: Runner, script: str, value: Json) -> None:
    assert await run.value(script) == value


async def test_packages_are_those_of_the_build_and_of_the_page_and_no_namespace(run: Runner) -> None:
    script = """
import importlib.metadata as m
packages = {each.name: each.version for each in m.distributions()}
[packages, m.packages_distributions(), [each.value for each in m.entry_points(group='babel.extractors')]]"""
    packages, modules, extractors = await run.value(script)
    assert packages == PACKAGES == dict(zip(column("Packages", 1), column("Packages", 2), strict=True))
    assert (modules["yaml"], extractors) == (["PyYAML"], ["jinja2.ext:babel_extract[i18n]"])
    names = modules.keys() - {"_yaml"}
    assert names == {cell.strip("`") for cell in column("Packages", 3)}
    assert [namespace_of(name) for name in names] == [f"{name}_" for name in names]


async def test_missing_modules_are_exactly_those_of_the_page(run: Runner) -> None:
    told = {
        name
        for cell in column("What is missing from the standard library", 1)
        for name in re.findall("`(.+?)`", cell)
    }
    script = """
import importlib, sys
missing = []
for name in {*TOLD, *(name for name in sys.stdlib_module_names if not name.startswith("_"))}:
    try:
        importlib.import_module(name)
    except ImportError:
        missing.append(name)
sorted(missing)
"""
    assert set(await run.value(f"TOLD = {sorted(told)!r}\n{script}")) == told


@pytest.mark.parametrize("name", PACKAGES)
def test_licence_is_recorded_and_its_text_is_the_packages_own(name: str) -> None:
    package = importlib.metadata.distribution(name)
    assert re.search(
        rf"^    {re.escape(name)} {re.escape(PACKAGES[name])} ", (ROOT / "NOTICE").read_text(), re.MULTILINE
    )
    own = [path for path in package.files or () if path.name in ("LICENSE", "LICENSE.txt")]
    assert (ROOT / f"licenses/{name}.txt").read_text() in [path.read_text() for path in own]


def test_pins_of_the_build_are_those_of_the_extra() -> None:
    """Baking and a checkout use the packages of the build hook."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {line.lower() for line in build_guest.REQUIREMENTS} <= set(extras["bake"])


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("import sys\nsys.version_info[:2]", [3, 14]),
        ("import io, sys\nsys.stdin = io.StringIO('Ann\\n')\ninput('name? ')", "Ann"),
        ("import zoneinfo, datetime\nberlin = zoneinfo.ZoneInfo('Europe/Berlin')\n"
         "datetime.datetime(2026, 7, 1, tzinfo=berlin).isoformat()", "2026-07-01T00:00:00+02:00"),
        ("import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    x: int\n"
         "pickle.loads(pickle.dumps(P(3))).x", 3),
        ("import asyncio\nawait asyncio.to_thread(sum, [1, 2])", 3),
        ("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n"
         "    x = list(pool.map(str, [1, 2]))\nx", ["1", "2"]),
        ("import time\nt = time.monotonic()\ntime.sleep(0.02)\ntime.monotonic() - t >= 0.02", True),
        ("import sys\ndel sys.stdin\ntry:\n    input()\nexcept RuntimeError as error:\n    x = str(error)\nx",
         "lost sys.stdin"),
        ("import io, warnings\nf = io.StringIO()\nwarnings.showwarning('told', UserWarning, 'a.py', 4, f, 'x = 1')\n"
         "f.getvalue()", "a.py:4: UserWarning: told\n  x = 1\n"),
        ("import os, sys\n[sys.stdout.fileno(), os.isatty(sys.stderr.fileno())]", [1, False]),
    ],
)  # fmt: skip
async def test_python_behaves(run: Runner, script: str, value: Json) -> None:
    assert await run.value(script) == value


async def test_everything_printed_is_captured(run: Runner) -> None:
    result = await run(
        "import sys, logging, warnings\nprint('out', end='')\nprint('err', file=sys.stderr)\n"
        "sys.stdout.buffer.write(b'raw\\n')\nlogging.warning('logged')\n"
        "warnings.warn('warned')\nprint('é', '\\ud800')\nNone"
    )
    assert result.stdout.startswith("outerr\nraw\nWARNING:root:logged\n")
    assert "UserWarning: warned" in result.stdout
    assert result.stdout.endswith("é \ufffd\n")
