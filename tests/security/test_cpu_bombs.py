"""What computes without end is stopped by the limit on computing, wherever it computes: in Python, in C, in a hook."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, exceeds
from tests.security.hostile import RAW_HOST

pytestmark = pytest.mark.anyio

LIMIT = exceeds("cpu_seconds", 0.1)
QUERY = """
QUERY = "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c"
"""
ENTITIES = """
from xml.etree import ElementTree
ENTITIES = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 9}">' for i in range(20))
DOCUMENT = f'<!DOCTYPE l [<!ENTITY a0 "a">{ENTITIES}]><l>&a20;</l>'
"""
CHAIN = """
error = None
for _ in range(10 ** 5):
    later = ValueError()
    later.__cause__, error = error, later
raise error
"""


def bomb(name: str, attack: str, twin: str = "sum(range(9))", value: object = 36, setup: str = "") -> Attack:
    return Attack(name, attack, LIMIT, twin, value, "await git.git_log()\n" + setup)


ATTACKS = [
    bomb("loop", "while True: pass"),
    bomb(
        "loop_that_catches", "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    ),
    bomb("loop_of_a_task", "while True: await asyncio.sleep(0)", "await asyncio.sleep(0, 1)", 1),
    bomb(
        "loop_of_callbacks",
        "def again(): loop.call_soon(again)\nagain()\nawait asyncio.sleep(600)",
        "loop.time() > 0",
        True,
        "loop = asyncio.get_running_loop()",
    ),
    bomb("loop_of_crossings", "while True: host.exchange('', 0)", "host.exchange('', 0)", "", RAW_HOST),
    bomb("loop_of_nothing_printed", "while True: host.print('')", "host.print('')", None, RAW_HOST),
    bomb("iterator", "sum(1 for _ in itertools.count())", "next(itertools.count())", 0, "import itertools"),
    bomb(
        "iterator_in_c",
        "collections.deque(itertools.repeat(1), 0)",
        "len(collections.deque([1]))",
        1,
        "import collections, itertools",
    ),
    bomb("range", "10**18 - 1 in iter(range(10**18))", "5 in range(9)", True),
    bomb(
        "permutations",
        "max(itertools.permutations(range(40)))",
        "len([*itertools.permutations('ab')])",
        2,
        "import itertools",
    ),
    bomb("power", "10 ** 10 ** 8", "10 ** 3", 1000),
    bomb(
        "power_of_a_fraction",
        "Fraction(3, 7) ** 10 ** 8",
        "str(Fraction(1, 2) ** 2)",
        "1/4",
        "from fractions import Fraction",
    ),
    bomb("digits", "str(7 ** 10 ** 7)", "str(7 ** 3)", "343", "import sys\nsys.set_int_max_str_digits(0)"),
    bomb(
        "digits_read", "int('9' * 10 ** 7)", "int('9' * 3)", 999, "import sys\nsys.set_int_max_str_digits(0)"
    ),
    bomb("factorial", "math.factorial(10 ** 7)", "math.factorial(5)", 120, "import math"),
    bomb(
        "decimal",
        "decimal.Decimal(2).sqrt(decimal.Context(10 ** 7))",
        "str(decimal.Decimal(4).sqrt())",
        "2",
        "import decimal",
    ),
    bomb(
        "regular_expression",
        "re.match('(a+)+$', 'a' * 40 + 'b')",
        "re.match('(a+)+$', 'aa')[0]",
        "aa",
        "import re",
    ),
    bomb(
        "regular_expression_of_words",
        "re.match(r'(\\w+\\s?)*$', 'a' * 40 + '!')",
        "re.match(r'\\w+', 'ab')[0]",
        "ab",
        "import re",
    ),
    bomb(
        "regular_expression_compiled",
        "re.compile('|'.join(f'(a{i}' for i in range(9000)) + ')' * 9000)",
        "re.compile('a').pattern",
        "a",
        "import re",
    ),
    bomb(
        "comparison",
        "sorted(map(Liar, range(10 ** 6)))",
        "sorted([2, 1])",
        [1, 2],
        "class Liar(int):\n    def __lt__(self, other): return self.__lt__ or 1",
    ),
    bomb(
        "hashes_that_collide",
        "{Same(i) for i in range(10 ** 5)}",
        "len({Same(1)})",
        1,
        "class Same(int):\n    def __hash__(self): return 1",
    ),
    bomb(
        "difference",
        "difflib.SequenceMatcher(None, 'ab' * 10 ** 4, 'ba' * 10 ** 4, False).ratio()",
        "difflib.SequenceMatcher(None, 'a', 'a').ratio()",
        1.0,
        "import difflib",
    ),
    bomb(
        "query",
        "sqlite3.connect(':memory:').execute(QUERY).fetchone()",
        "sqlite3.connect(':memory:').execute('select 1').fetchone()",
        [1],
        "import sqlite3\n" + QUERY,
    ),
    bomb(
        "entities",
        "ElementTree.fromstring(DOCUMENT)",
        "ElementTree.fromstring('<a/>').tag",
        "a",
        ENTITIES,
    ),
    bomb(
        "hash_of_much",
        "while True: hashlib.sha256(much)",
        "hashlib.sha256(b'').hexdigest()[:4]",
        "e3b0",
        "import hashlib\nmuch = bytes(10 ** 7)",
    ),
    bomb("copies_of_much", "while True: bytes(much)", "bytes(much[:1])[0]", 0, "much = bytearray(10 ** 7)"),
    bomb(
        "packing",
        "while True: zlib.compress(much, 9)",
        "len(zlib.decompress(zlib.compress(b'ab')))",
        2,
        "import zlib\nmuch = bytes(10 ** 7)",
    ),
    bomb(
        "unpacking",
        "while True: zlib.decompress(packed)",
        "len(zlib.decompress(packed))",
        10**6,
        "import zlib\npacked = zlib.compress(bytes(10 ** 6))",
    ),
    bomb("source", "exec('x = ' + '1 + ' * 10 ** 6 + '1')", "eval('1 + ' * 9 + '1')", 10),
    bomb(
        "finalizer",
        "Late()",
        "Late.__name__",
        "Late",
        "class Late:\n    def __del__(self):\n        while True: pass",
    ),
    bomb(
        "finalizer_of_a_generator",
        "stays = stay(1)\nnext(stays)\ndel stays",
        "next(stay(0))",
        0,
        "def stay(turns):\n    try:\n        yield turns\n    finally:\n        while turns: pass",
    ),
    bomb(
        "hook_of_a_class",
        "class A(Endless): pass",
        "Endless.__name__",
        "Endless",
        "class Endless:\n    def __init_subclass__(cls):\n        while True: pass",
    ),
    bomb(
        "text_of_an_error",
        "raise Wordy",
        "str(ValueError('a'))",
        "a",
        "class Wordy(Exception):\n    def __str__(self):\n        while True: pass",
    ),
    bomb(
        "errors_in_a_chain",
        CHAIN,
        "str(ValueError('a'))",
        "a",
    ),
    bomb(
        "keys_without_end",
        "json.dumps(Endless(a=1))",
        "json.dumps({'a': 1})",
        '{"a": 1}',
        "import json\nclass Endless(dict):\n    def items(self):\n        while True: pass",
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_computing_ends_at_its_limit(arena: Arena, attack: Attack) -> None:
    result = await arena.withstands(attack)
    assert result.cpu_ms >= 100


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_computing_a_little_goes_through(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)
