"""Native code cannot be loaded: no foreign function, no shared library, no extension, no machine code."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, raises, yields

pytestmark = pytest.mark.anyio

ABSENT = raises("ModuleNotFoundError")
NO_LIBRARY = raises("ImportError: library not found")
NO_FUNCTION = raises("sqlite3.OperationalError: no such function")
SPEC = """
import _imp, importlib.machinery as machinery
def spec(name):
    return machinery.ModuleSpec(name, None, origin=FLAG)
"""
FORGED_SCHEMA = """
SCHEMA = '''
pragma writable_schema = on;
insert into sqlite_master values ("table", "a", "a", 999999, "create table a(b)");
pragma writable_schema = reset;
select * from a
'''
"""
DATABASE = "import sqlite3\ndatabase = sqlite3.connect(':memory:')"


def absent(module: str, twin: str, value: object) -> Attack:
    return Attack(module, f"import {module}", ABSENT, twin, value)


ATTACKS = [
    absent("ctypes", "import struct\nstruct.calcsize('<I')", 4),
    absent("_ctypes", "import struct\nlist(struct.unpack('<HH', b'abcd'))", [25185, 25699]),
    absent("cffi", "import array\narray.array('i', [1]).itemsize", 4),
    absent("mmap", "import io\nio.BytesIO(b'abc').getbuffer().nbytes", 3),
    absent("_posixshmem", "memoryview(b'abc')[1]", 98),
    absent("multiprocessing.shared_memory", "bytearray(b'a')[0]", 97),
    absent("fcntl", "import errno\nerrno.ENOENT", 44),
    absent("termios", "import string\nstring.digits[:2]", "01"),
    absent("readline", "import cmd\ncmd.Cmd.prompt", "(Cmd) "),
    absent("_testcapi", "import sys\nsys.maxsize", 2147483647),
    absent("_testinternalcapi", "import sys\nsys.byteorder", "little"),
    absent("_remote_debugging", "import sys\nsys.implementation.name", "cpython"),
    absent("numpy.ctypeslib", "import math\nmath.isqrt(17)", 4),
    Attack(
        "extension_by_loader",
        "machinery.ExtensionFileLoader('x', FLAG).create_module(spec('x'))",
        NO_LIBRARY,
        "machinery.EXTENSION_SUFFIXES is not None",
        True,
        SPEC,
    ),
    Attack(
        "extension_by_spec",
        "_imp.create_dynamic(spec('x'))",
        NO_LIBRARY,
        "_imp.extension_suffixes() is not None",
        True,
        SPEC,
    ),
    Attack(
        "extension_with_nul",
        "_imp.create_dynamic(machinery.ModuleSpec('x', None, origin='a\\0b'))",
        Fate("script_error"),
        "_imp.lock_held()",
        False,
        SPEC,
    ),
    Attack(
        "hidden_builtin",
        "_imp.create_builtin(spec('_ctypes'))",
        yields(None),
        "_imp.is_builtin('sys') != 0",
        True,
        SPEC,
    ),
    Attack(
        "flags_of_the_loader",
        "sys.setdlopenflags(2)",
        yields(None),
        "sys.getswitchinterval() > 0",
        True,
        "import sys",
    ),
    Attack(
        "extension_of_the_database",
        "database.enable_load_extension(True)",
        raises("AttributeError"),
        "database.execute('select 1').fetchone()",
        [1],
        DATABASE,
    ),
    Attack(
        "load_into_the_database",
        "database.execute('select load_extension(?)', (FLAG,))",
        NO_FUNCTION,
        "database.execute('select abs(-1)').fetchone()",
        [1],
        DATABASE,
    ),
    Attack(
        "file_through_the_database",
        "database.execute('select readfile(?)', (FLAG,))",
        NO_FUNCTION,
        "database.execute('select upper(?)', ('a',)).fetchone()",
        ["A"],
        DATABASE,
    ),
    Attack(
        "pointer_into_the_database",
        "database.execute(\"select fts3_tokenizer('x', x'4141414141414141')\")",
        NO_FUNCTION,
        "database.execute('select hex(?)', (b'a',)).fetchone()",
        ["61"],
        DATABASE,
    ),
    Attack(
        "folder_of_the_database",
        "database.execute('pragma temp_store_directory = \"/tmp\"')",
        raises("sqlite3.OperationalError"),
        "database.execute('pragma temp_store').fetchone()",
        [2],
        DATABASE,
    ),
    Attack(
        "schema_of_the_database",
        "database.executescript(SCHEMA)",
        raises("sqlite3.DatabaseError"),
        "database.execute('create table a(b)').fetchall()",
        [],
        DATABASE + FORGED_SCHEMA,
    ),
    Attack(
        "damaged_database",
        "database.deserialize(damaged)\ndatabase.execute('select * from sqlite_master').fetchall()",
        raises("sqlite3.DatabaseError"),
        "len(damaged) > len(database.serialize())",
        True,
        DATABASE + "\ndamaged = b'SQLite format 3\\0' + bytes(range(256)) * 64",
    ),
    Attack(
        "trampoline",
        "sys.activate_stack_trampoline('perf')",
        Fate("script_error"),
        "sys.is_stack_trampoline_active()",
        False,
        "import sys",
    ),
    Attack(
        "machine_code_in_memory",
        "memoryview(b'\\x0f\\x05').cast('B').toreadonly()()",
        raises("TypeError"),
        "memoryview(b'ab').tolist()",
        [97, 98],
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_no_native_code_is_loaded(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_what_is_built_in_works(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)
