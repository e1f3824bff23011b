"""Memory beyond the limit is not had: the script gets a MemoryError or ends, and the limit is named."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, exceeds, raises

pytestmark = pytest.mark.anyio

LIMIT = exceeds("memory_mib", 48)
TOO_LARGE = raises("OverflowError")

MAKE_ARCHIVE = """
import io, zipfile
def made():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a", "w") as inner:
        for _ in range(30):
            inner.write(bytes(10 ** 6))
    return file
"""
DATABASE = "import sqlite3\ndatabase = sqlite3.connect(':memory:')\n"
ROWS = """
ROWS = '''
with recursive c(x) as (select 1 union all select x + 1 from c where x < 99)
select group_concat(printf("%.*c", 1000000, "x")) from c
'''
"""


def bomb(
    name: str,
    attack: str,
    twin: str = "len(bytes(9))",
    value: object = 9,
    setup: str = "",
    fate: Fate = LIMIT,
) -> Attack:
    return Attack(name, attack, fate, twin, value, "await git.git_log()\n" + setup)


ATTACKS = [
    bomb("bytes", "bytes(10 ** 9)"),
    bomb("bytes_beyond_addresses", "bytes(2 ** 31 - 1)", fate=TOO_LARGE),
    bomb("bytes_beyond_numbers", "bytes(2 ** 62)", fate=TOO_LARGE),
    bomb("text", "'x' * 10 ** 9", "'x' * 3", "xxx"),
    bomb("text_that_doubles", "text = 'x'\nwhile True: text += text", "'x' + 'x'", "xx"),
    bomb("list", "[0] * 10 ** 8", "[0] * 2", [0, 0]),
    bomb("list_that_grows", "grows = []\nwhile True: grows.append('x' * 10 ** 5)", "[].append(1)", None),
    bomb("dict_that_grows", "grows = {}\nwhile True: grows[len(grows)] = [grows]", "{'a': 1}", {"a": 1}),
    bomb("set", "{*range(10 ** 8)}", "len({*range(9)})", 9),
    bomb("range_as_a_list", "[*range(10 ** 8)]", "[*range(3)]", [0, 1, 2]),
    bomb("many_that_are_linked", "chain = None\nwhile True: chain = [chain] * 9", "[None] * 2", [None, None]),
    bomb("cycles", "import gc\ngc.disable()\nwhile True:\n    a = [0] * 99\n    a.append(a)", "[0][:0]", []),
    bomb("comprehension", "[[0] * 99 for _ in iter(int, 1)]", "[0 for _ in 'a']", [0]),
    bomb("joined", "''.join(iter(lambda: 'x' * 10 ** 6, ''))", "''.join(['a', 'b'])", "ab"),
    bomb("width_of_a_format", "f'{1:>1000000000}'", "f'{1:>3}'", "  1"),
    bomb("width_of_an_old_format", "'%1000000000d' % 1", "'%3d' % 1", "  1"),
    bomb("padding", "'1'.zfill(10 ** 9)", "'1'.zfill(3)", "001"),
    bomb("centred", "'1'.center(10 ** 9)", "'1'.center(3)", " 1 "),
    bomb("tabs", "('\\t' * 99).expandtabs(10 ** 7)", "'\\t'.expandtabs(2)", "  "),
    bomb("replaced", "('a' * 10 ** 5).replace('a', 'b' * 10 ** 4)", "'a'.replace('a', 'bb')", "bb"),
    bomb("shifted", "1 << 10 ** 10", "1 << 3", 8),
    bomb("shifted_beyond_addresses", "1 << (1 << 62)", "1 << 2", 4, fate=TOO_LARGE),
    bomb("array", "array.array('d', [0]) * 10 ** 8", "array.array('b', [1])[0]", 1, "import array"),
    bomb("buffer", "io.BytesIO().write(bytes(10 ** 8) * 9)", "io.BytesIO().write(b'a')", 1, "import io"),
    bomb(
        "hole_in_a_buffer",
        "b = io.BytesIO()\nb.seek(10 ** 9)\nb.write(b'x')",
        "io.BytesIO().seek(3)",
        3,
        "import io",
    ),
    bomb(
        "unpacked",
        "[zlib.decompress(packed) for _ in range(99)]",
        "len(zlib.decompress(packed)) > 9",
        True,
        "import zlib\npacked = zlib.compress(bytes(10 ** 6))",
    ),
    bomb(
        "archive",
        "zipfile.ZipFile(made()).read('a')",
        "zipfile.ZipFile(made()).namelist()",
        ["a"],
        MAKE_ARCHIVE,
    ),
    bomb(
        "precision",
        "decimal.Decimal(1) / 3",
        "str(decimal.Decimal(1) / 4)",
        "0.25",
        "import decimal\nfrom decimal import *\nsetcontext(Context(prec=MAX_PREC, Emax=MAX_EMAX))",
    ),
    bomb(
        "products",
        "itertools.product(range(10 ** 7), repeat=9)",
        "len([*itertools.product('ab', repeat=2)])",
        4,
        "import itertools",
    ),
    bomb(
        "tee",
        "one, other = itertools.tee(itertools.count())\nfor _ in one: pass",
        "next(itertools.tee('a')[0])",
        "a",
        "import itertools",
    ),
    bomb(
        "queue",
        "queue = asyncio.Queue()\nwhile True: queue.put_nowait('x' * 10 ** 4)",
        "asyncio.Queue().qsize()",
        0,
    ),
    bomb(
        "tasks",
        "while True: asyncio.get_running_loop().create_task(asyncio.sleep(600))",
        "await asyncio.create_task(asyncio.sleep(0, 1))",
        1,
    ),
    bomb("futures", "kept = []\nwhile True: kept.append(asyncio.Future())", "asyncio.Future().done()", False),
    bomb(
        "blob_of_the_database",
        "database.execute('select zeroblob(900000000)').fetchone()",
        "len(database.execute('select zeroblob(9)').fetchone()[0])",
        9,
        "import sqlite3\ndatabase = sqlite3.connect(':memory:')",
    ),
    bomb(
        "rows_of_the_database",
        "database.execute(ROWS).fetchone()",
        "database.execute('select max(1, 2)').fetchone()",
        [2],
        DATABASE + ROWS,
    ),
    bomb(
        "document",
        "ElementTree.fromstring('<a>' + '<b/>' * 10 ** 6 + '</a>')",
        "len(ElementTree.fromstring('<a><b/></a>'))",
        1,
        "from xml.etree import ElementTree",
    ),
    bomb("parsed", "json.loads('[' + '[],' * 2_000_000 + '0]')", "json.loads('[[]]')", [[]], "import json"),
    bomb(
        "frames",
        "def deeper(x): return deeper([x] * 10 ** 5)\ndeeper(0)",
        "[0] * 1",
        [0],
        "import sys\nsys.setrecursionlimit(10 ** 6)",
    ),
    bomb("randomness", "os.urandom(10 ** 9)", "len(os.urandom(70_000))", 70_000, "import os"),
    bomb("bits", "random.getrandbits(2 ** 31 - 1)", "random.getrandbits(3) < 8", True, "import random"),
    bomb(
        "error_that_is_caught",
        "while True:\n    try: bytes(10 ** 9)\n    except MemoryError: raise",
        "bytes(1)[0]",
        0,
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_memory_beyond_the_limit_is_not_had(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_memory_within_the_limit_is_had(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)


async def test_script_may_catch_that_there_is_no_memory_and_go_on(arena: Arena) -> None:
    script = "try:\n    bytes(10 ** 9)\nexcept MemoryError:\n    x = 'caught'\nlen(bytes(10 ** 7)), x"
    assert (await arena.run(script)).value == [10**7, "caught"]
