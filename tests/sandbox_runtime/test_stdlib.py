"""Python inside is Python: its library imports, and its small habits are kept."""

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio

MODULES = """
abc argparse array ast asyncio base64 bdb binascii bisect calendar cmath cmd code codecs codeop collections colorsys
compileall concurrent.futures configparser contextlib contextvars copy copyreg csv dataclasses datetime decimal difflib
dis doctest email email.message email.mime.text encodings.cp1252 enum errno filecmp fileinput fnmatch fractions ftplib
functools gc getopt getpass gettext glob graphlib gzip hashlib heapq hmac html html.parser http http.client http.cookies
imaplib importlib importlib.metadata importlib.resources inspect io ipaddress itertools json keyword linecache locale
logging logging.config mailbox math mimetypes modulefinder multiprocessing netrc numbers operator optparse os os.path
pathlib pdb pickle pickletools pkgutil platform plistlib poplib posixpath pprint profile pstats py_compile pyclbr queue
quopri random re reprlib rlcompleter runpy sched secrets select selectors shelve shlex shutil signal smtplib socket
socketserver sqlite3 stat statistics string string.templatelib stringprep struct subprocess symtable sys sysconfig
tarfile tempfile textwrap threading time timeit token tokenize tomllib trace traceback tracemalloc types typing
unicodedata
unittest urllib.error urllib.parse urllib.request urllib.robotparser uuid warnings wave weakref webbrowser wsgiref.util
xml.dom.minidom xml.etree.ElementTree xml.sax xmlrpc.client zipapp zipfile zipimport zlib zoneinfo
""".split()  # noqa: SIM905  # a list would be a page long


async def test_standard_library_imports(run: Runner) -> None:
    script = """
import importlib
missing = {}
for name in MODULES:
    try:
        importlib.import_module(name)
    except BaseException as error:
        missing[name] = str(error)
missing
"""
    assert await run.value(f"MODULES = {MODULES!r}\n{script}") == {}


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("import sys\nsys.version_info[:2]", [3, 14]),
        ("__name__", "__main__"),
        ("import sys\nsys.argv", ["script.py"]),
        ("import os\ndict(os.environ)", {}),
        ("import sys\nsys.stdin.read()", ""),
        ("import io, sys\nsys.stdin = io.StringIO('Ann\\n')\ninput('name? ')", "Ann"),
        ("import zoneinfo, datetime\nberlin = zoneinfo.ZoneInfo('Europe/Berlin')\n"
         "datetime.datetime(2026, 7, 1, tzinfo=berlin).isoformat()", "2026-07-01T00:00:00+02:00"),
        ("import zoneinfo\nlen(zoneinfo.available_timezones()) > 500", True),
        ("import sqlite3\nsqlite3.connect(':memory:').execute('select 1 + 1').fetchone()", [2]),
        ("import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    x: int\n"
         "pickle.loads(pickle.dumps(P(3))).x", 3),
        ("import asyncio\nawait asyncio.to_thread(sum, [1, 2])", 3),
        ("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n"
         "    x = list(pool.map(str, [1, 2]))\nx", ["1", "2"]),
        ("import time\nt = time.monotonic()\ntime.sleep(0.02)\ntime.monotonic() - t >= 0.02", True),
        ("import asyncio, time\nt = time.monotonic()\nawait asyncio.gather(*[asyncio.sleep(0.05) for _ in range(9)])\n"
         "0.05 <= time.monotonic() - t < 0.4", True),
        ("import select\nselect.select([], [], [], 0.01)", [[], [], []]),
        ("import selectors\nselectors.DefaultSelector().select(0.01)", []),
        ("import sys\ndel sys.stdin\ntry:\n    input()\nexcept RuntimeError as error:\n    x = str(error)\nx",
         "lost sys.stdin"),
        ("import io, warnings\nf = io.StringIO()\nwarnings.showwarning('told', UserWarning, 'a.py', 4, f, 'x = 1')\n"
         "f.getvalue()", "a.py:4: UserWarning: told\n  x = 1\n"),
        ("import os, sys\n[sys.stdout.fileno(), os.isatty(sys.stderr.fileno())]", [1, False]),
        ("import os\nos.write(1, b'past the capture')", 16),
        ("import asyncio\nq = asyncio.Queue()\nasync def put():\n    await q.put(7)\nt = asyncio.create_task(put())\n"
         "await q.get()", 7),
        ("import logging\nlogging.getLogger('x').warning('w')\nNone", None),
        ("import json, re, math, statistics, hashlib\n[json.loads('[1]'), re.findall('a', 'aba'), math.pi > 3, "
         "statistics.mean([1, 3]), hashlib.sha256(b'').hexdigest()[:4]]", [[1], ["a", "a"], True, 2, "e3b0"]),
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
