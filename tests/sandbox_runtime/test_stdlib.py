"""Python inside is Python: its library imports, and its small habits are kept."""

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("import sys\nsys.version_info[:2]", [3, 14]),
        ("__name__", "__main__"),
        ("import io, sys\nsys.stdin = io.StringIO('Ann\\n')\ninput('name? ')", "Ann"),
        ("import zoneinfo, datetime\nberlin = zoneinfo.ZoneInfo('Europe/Berlin')\n"
         "datetime.datetime(2026, 7, 1, tzinfo=berlin).isoformat()", "2026-07-01T00:00:00+02:00"),
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
        ("import asyncio\nq = asyncio.Queue()\nasync def put():\n    await q.put(7)\nt = asyncio.create_task(put())\n"
         "await q.get()", 7),
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
