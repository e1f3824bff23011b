"""Scripts that try to use too much: each ends at the limit, which is named with its place."""

from collections.abc import AsyncIterator

import pytest

from tests.acceptance.hostile import RAW_HOST, REACHED, VALUE, Arena, Attack, Attacks, arena, each

pytestmark = pytest.mark.anyio

LIMITS = {
    "cpu_seconds": 0.5,
    "tool_calls": 5,
    "argument_bytes": 1000,
    "outcome_bytes": 5000,
    "result_bytes": 5000,
    "stdout_bytes": 1000,
}

BOMBS = [
    Attacks(
        "cpu bombs",
        "cpu_limit",
        {
            "loop": "while True: pass",
            "loop_that_catches": """\
while True:
    try:
        while True: pass
    except BaseException: pass
""",
            "loop_of_a_task": "while True: await asyncio.sleep(0)",
            "loop_of_callbacks": """\
loop = asyncio.get_running_loop()
def again(): loop.call_soon(again)
again()
await asyncio.sleep(600)
""",
            "iterator_in_c": "import collections, itertools\ncollections.deque(itertools.repeat(1), 0)",
            "range": "10**18 - 1 in iter(range(10**18))",
            "power": "10 ** 10 ** 8",
            "digits": "import sys\nsys.set_int_max_str_digits(0)\nstr(7 ** 10 ** 7)",
            "regular_expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
            "hashes_that_collide": """\
class Same(int):
    def __hash__(self): return 1
{Same(i) for i in range(10 ** 5)}
""",
            "difference": """\
import difflib
difflib.SequenceMatcher(None, 'ab' * 10 ** 4, 'ba' * 10 ** 4, False).ratio()
""",
            "query": """\
import sqlite3

QUERY = "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c"
sqlite3.connect(':memory:').execute(QUERY).fetchone()
""",
            "packing": "import zlib\nmuch = bytes(10 ** 7)\nwhile True: zlib.compress(much, 9)",
            "finalizer": "class Late:\n    def __del__(self):\n        while True: pass\nLate()",
            "text_of_an_error": """\
class Wordy(Exception):
    def __str__(self):
        while True: pass
raise Wordy
""",
            "keys_without_end": """\
import json
class Endless(dict):
    def items(self):
        while True: pass
json.dumps(Endless(a=1))
""",
        },
    ),
    Attacks(
        "cpu bombs", "cpu_limit", {"loop_of_crossings": "while True: host.exchange('', 0)"}, setup=RAW_HOST
    ),
    Attacks(
        "result bombs",
        "result_limit",
        {
            "long_text": "'x' * 10 ** 4",
            "very_long_text": "'x' * 10 ** 7",
            "text_that_is_longer_escaped": "'\\0' * 2000",
            "many_keys": "{str(i): i for i in range(2000)}",
            "many_lists": "[[]] * 2000",
        },
    ),
    Attacks(
        "result bombs",
        "result_limit",
        {
            "raw_block": "host.emit('x' * 10 ** 7)",
            "raw_blocks": 'while True: host.emit(\'{"type": "text"}\')',
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "result bombs",
        "script_error: ValueError: xxx",
        {"text_of_an_error": "raise ValueError('x' * 10 ** 7)"},
    ),
    Attacks(
        "result bombs",
        "script_error: ExceptionGroup: g",
        {"leaves_of_an_error": "raise ExceptionGroup('g', [ValueError('x' * 9999)] * 999)"},
    ),
    Attacks(
        "result bombs", "script_exit: xxx", {"status_of_the_exit": "import sys\nsys.exit('x' * 10 ** 7)"}
    ),
    Attacks(
        "argument bombs",
        "argument_limit",
        {
            "long_text": "await git.git_log(a='x' * 1000)",
            "very_long_text": "await git.git_log(a='x' * 10 ** 7)",
            "text_of_two_bytes": "await git.git_log(a='é' * 500)",
            "many_names": "await git.git_log(**{f'x{i}': i for i in range(200)})",
            "long_integer": "await git.git_log(a=10 ** 2000)",
            "shared_lists": "await git.git_log(a=[[[[1] * 9] * 9] * 9] * 9)",
        },
    ),
    Attacks(
        "argument bombs",
        VALUE,
        {
            "size_that_is_claimed": (
                "'argument_limit' in host.exchange('1 git.git_log !' + '9' * 19, 2000)",
                True,
            ),
            "raw_depth": (
                "'argument_limit' in host.exchange('1 git.git_log {\"a\":' + '[' * 400 + ']' * 400 + '}', 2000)",
                True,
            ),
            "raw_values": (
                "'argument_limit' in host.exchange('1 git.git_log {\"a\":[' + '1,' * 400 + '1]}', 2000)",
                True,
            ),
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "argument bombs",
        "argument_limit",
        {"raw_flood": "host.exchange('1 git.git_log ' + 'x' * 10 ** 8, 2000)"},
        setup=RAW_HOST,
    ),
    Attacks(
        "call bombs",
        "tool_calls_limit",
        {
            "one_by_one": "for _ in range(6): await git.git_log()",
            "all_at_once": "await asyncio.gather(*[git.git_log() for _ in range(1000)])",
            "calls_of_calls": """\
async def more():
    await git.git_log()
    await asyncio.gather(more(), more())
await more()
""",
        },
    ),
    Attacks(
        "call bombs",
        "cpu_limit",
        {
            "refused_and_again": """\
while True:
    try:
        await git.git_log()
    except ToolError:
        pass
""",
            "nobody_waits": """\
while True:
    asyncio.ensure_future(git.git_log())
    await asyncio.sleep(0)
""",
        },
    ),
    Attacks(
        "call bombs",
        "tool_calls_limit",
        {
            "raw_batch": """\
host.exchange('\\n'.join(f'{i} git.git_log {{}}' for i in range(1, 30_000)), 5000)
host.exchange('', 5000)
"""
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "call bombs",
        "worker_lost",
        {
            "raw_cancellations": "host.exchange('\\n'.join(['7'] * 99_000), 5000)",
            "raw_empty_lines": "host.exchange('\\n' * 99_000, 5000)",
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "stdout bombs",
        "cpu_limit",
        {
            "lines": "while True: print('x' * 99)",
            "flushed": "while True: print('x', flush=True)",
            "stderr": "import sys\nwhile True: print('x' * 99, file=sys.stderr)",
            "log": "import logging\nwhile True: logging.error('x' * 99)",
        },
    ),
    Attacks("stdout bombs", "cpu_limit", {"raw_host": "while True: host.print('x' * 99)"}, setup=RAW_HOST),
    Attacks(
        "stdout bombs",
        VALUE,
        {
            "one_long_line": ("print('x' * 10 ** 7)\n7", 7),
            "escapes": ("print('\\x1b[2J\\x07' * 10 ** 5)\n7", 7),
        },
    ),
    Attacks("stdout bombs", VALUE, {"raw_gulp": ("host.print('x' * 8_000_000)\n7", 7)}, setup=RAW_HOST),
]

WAITS = [
    Attacks(
        "sleep bombs",
        "wall_limit",
        {
            "sleep": "import time\ntime.sleep(600)",
            "sleep_for_ever": "import time\ntime.sleep(float('inf'))",
            "sleep_again_and_again": "import time\nwhile True: time.sleep(0.01)",
            "loop_sleeps": "await asyncio.sleep(600)",
            "timer": "await asyncio.wait_for(asyncio.Event().wait(), 600)",
            "select": "import select\nselect.select([], [], [], 600)",
            "selector": "import selectors\nselectors.DefaultSelector().select(600)",
            "call": "await git.hangs()",
            "call_that_may_not_be_cancelled": """\
while True:
    try: await asyncio.shield(git.hangs())
    except BaseException: pass
""",
            "queue_with_a_timeout": "import queue\nqueue.Queue().get(timeout=600)",
            "sleep_while_it_ends": """\
import time
class Slow(Exception):
    def __str__(self): time.sleep(600)
raise Slow
""",
            "sleep_as_it_is_let_go": """\
import time
class Slow:
    def __del__(self): time.sleep(600)
slow = Slow()
del slow
""",
            "task_that_will_not_end": """\
async def stay():
    while True:
        try: await asyncio.sleep(600)
        except BaseException: pass
task = asyncio.ensure_future(stay())
await asyncio.sleep(0.01)
""",
        },
    ),
    Attacks(
        "sleep bombs",
        "wall_limit",
        {
            "raw_wait": "host.exchange('', 600_000)",
            "raw_wait_without_end": "host.exchange('1 git.hangs {}', -1)",
        },
        setup=RAW_HOST,
    ),
]

SIZES = [
    Attacks(
        "memory bombs",
        "memory_limit",
        {
            "bytes": "bytes(10 ** 9)",
            "text_that_doubles": "text = 'x'\nwhile True: text += text",
            "list_that_grows": "grows = []\nwhile True: grows.append('x' * 10 ** 5)",
            "cycles": "import gc\ngc.disable()\nwhile True:\n    a = [0] * 99\n    a.append(a)",
            "joined": "''.join(iter(lambda: 'x' * 10 ** 6, ''))",
            "width_of_a_format": "f'{1:>1000000000}'",
            "shifted": "1 << 10 ** 10",
            "hole_in_a_buffer": "import io\nb = io.BytesIO()\nb.seek(10 ** 9)\nb.write(b'x')",
            "unpacked": """\
import zlib
packed = zlib.compress(bytes(10 ** 6))
[zlib.decompress(packed) for _ in range(99)]
""",
            "precision": """\
import decimal
from decimal import *
setcontext(Context(prec=MAX_PREC, Emax=MAX_EMAX))
decimal.Decimal(1) / 3
""",
            "tasks": "await asyncio.sleep(0)\nwhile True: asyncio.get_running_loop().create_task(asyncio.sleep(600))",
            "blob_of_the_database": """\
import sqlite3
database = sqlite3.connect(':memory:')
database.execute('select zeroblob(900000000)').fetchone()
""",
            "document": """\
from xml.etree import ElementTree
ElementTree.fromstring('<a>' + '<b/>' * 10 ** 6 + '</a>')
""",
            "parsed": "import json\njson.loads('[' + '[],' * 2_000_000 + '0]')",
            "frames": """\
import sys
sys.setrecursionlimit(10 ** 6)
def deeper(x): return deeper([x] * 10 ** 5)
deeper(0)
""",
            "randomness": "import os\nos.urandom(10 ** 9)",
        },
    ),
    Attacks(
        "stack bombs",
        "script_error: RecursionError",
        {
            "function": "def f(): f()\nf()",
            "function_without_a_limit": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()",
            "coroutine": "async def f(): await f()\nawait f()",
            "generator": "def f(): yield from f()\nnext(f())",
            "comparison": """\
deep = []
for _ in range(10 ** 5): deep = [deep]
other = []
for _ in range(10 ** 5): other = [other]
deep == other
""",
            "text": "deep = []\nfor _ in range(10 ** 5): deep = [deep]\nrepr(deep)",
            "value": "deep = []\nfor _ in range(10 ** 5): deep = [deep]\ndeep",
            "argument": "deep = []\nfor _ in range(10 ** 5): deep = [deep]\nawait git.git_log(a=deep)",
            "block": """\
deep = []
for _ in range(10 ** 5): deep = [deep]
portal.emit({'type': 'text', 'text': deep})
""",
            "json_written": """\
import json
deep = []
for _ in range(10 ** 5): deep = [deep]
json.dumps(deep)
""",
            "json_read": "import json\njson.loads('[' * 10 ** 5)",
            "pickled": """\
import pickle
deep = []
for _ in range(10 ** 5): deep = [deep]
pickle.dumps(deep)
""",
            "copied": """\
import copy
deep = []
for _ in range(10 ** 5): deep = [deep]
copy.deepcopy(deep)
""",
            "iterators": """\
import itertools
deep = iter([1])
for _ in range(10 ** 5): deep = itertools.chain(deep)
next(deep)
""",
            "expression": "import re\nre.compile('(' * 10 ** 4 + ')' * 10 ** 4)",
            "document": """\
from xml.etree import ElementTree
ElementTree.tostring(ElementTree.fromstring('<a>' * 10 ** 5 + '</a>' * 10 ** 5))
""",
            "groups_of_errors": """\
error = ValueError()
for _ in range(10 ** 4): error = ExceptionGroup('g', [error])
raise error
""",
        },
    ),
    Attacks(
        "stack bombs", "script_error: MemoryError: Parser stack overflowed", {"source": "eval('(' * 10 ** 5)"}
    ),
]


@pytest.fixture(scope="module")
async def portal(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Arena]:
    async with arena(tmp_path_factory.mktemp("limits"), LIMITS) as portal:
        yield portal


@pytest.fixture(scope="module")
async def hasty(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Arena]:
    """A portal in which scripts have a third of a second."""
    async with arena(tmp_path_factory.mktemp("hasty"), {"wall_seconds": 0.3}) as portal:
        yield portal


@pytest.fixture(scope="module")
async def patient(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Arena]:
    async with arena(tmp_path_factory.mktemp("patient"), {"cpu_seconds": 10, "memory_mib": 48}) as portal:
        yield portal


@pytest.mark.parametrize("attack", each(BOMBS))
async def test_bomb_ends_at_a_limit_that_is_named_with_its_place(portal: Arena, attack: Attack) -> None:
    answer = await portal.withstands(attack)
    if attack.fate.endswith("_limit"):
        key = next(key for key in LIMITS if key.startswith(attack.fate.removesuffix("_limit")))
        for told in (key, f"{LIMITS[key]:,}", "portal.yaml:"):
            assert told in answer["error"]["message"]


@pytest.mark.parametrize("attack", each(WAITS))
async def test_waiting_ends_with_the_time_of_the_script(hasty: Arena, attack: Attack) -> None:
    answer = await hasty.withstands(attack)
    assert "wall_seconds of 0.3" in answer["error"]["message"]
    assert "portal.yaml:" in answer["error"]["message"]


@pytest.mark.parametrize("attack", each(SIZES))
async def test_memory_and_stack_end_in_an_error_of_the_script(patient: Arena, attack: Attack) -> None:
    await patient.withstands(attack)


async def test_what_was_called_and_printed_before_the_end_is_told(portal: Arena) -> None:
    answer = await portal.model.run(f"await git.git_log(a=1)\nprint({REACHED!r})\nwhile True: pass")
    assert (answer["error"]["code"], answer["stdout"]) == ("cpu_limit", REACHED + "\n")
    assert [(call["function"], call["state"]) for call in answer["calls"]] == [("git.git_log", "done")]


async def test_outcome_that_is_too_large_is_an_error_of_the_script(portal: Arena) -> None:
    answer = await portal.model.run("await git.long()")
    assert answer["error"]["code"] == "outcome_limit"
    assert "outcome_bytes" in answer["error"]["message"]


async def test_output_beyond_its_limit_is_cut_and_told(portal: Arena) -> None:
    answer = await portal.model.run("print('x' * 10 ** 6)\n7")
    assert (answer["result"], len(answer["stdout"]) <= 1000) == (7, True)
    assert any("stdout_bytes" in notice and "portal.yaml:" in notice for notice in answer["notices"])


async def test_modest_script_keeps_all_limits(portal: Arena) -> None:
    script = "print('x' * 99)\nportal.emit({'type': 'text', 'text': 'x'})\n"
    script += "[(await git.git_log(a=i))['a'] for i in range(5)]"
    assert await portal.model.result_of(script) == [0, 1, 2, 3, 4]
