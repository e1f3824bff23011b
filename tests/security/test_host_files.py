"""Files of the host are neither read, written, listed nor guessed; what stays in memory works."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, raises, yields

pytestmark = pytest.mark.anyio

MISSING = raises("FileNotFoundError")
BAD_DESCRIPTOR = raises("OSError: [Errno 8]")
OPENS = """
import os
def opens(descriptor):
    try:
        return os.fstat(descriptor) is not None
    except OSError:
        return False
"""
OWN_TEXT = "io.StringIO('mine').read()"

ATTACKS = [
    Attack("open", "open(FLAG).read()", MISSING, OWN_TEXT, "mine", "import io"),
    Attack("open_bytes", "open(FLAG, 'rb').read()", MISSING, "io.BytesIO(b'x').read()[0]", 120, "import io"),
    Attack("open_relative", "open('portal.yaml')", MISSING, OWN_TEXT, "mine", "import io"),
    Attack(
        "climb",
        "open('../' * 40 + FLAG.lstrip('/'))",
        MISSING,
        "os.path.normpath('a/../b')",
        "b",
        "import os",
    ),
    Attack("descriptor_zero", "open(0).read()", yields(""), "sys.stdin.read()", "", "import sys"),
    Attack("raw_open", "os.open(FLAG, os.O_RDONLY)", MISSING, "os.O_RDONLY", 67108864, "import os"),
    Attack(
        "raw_create",
        "os.open(FOLDER + '/made', os.O_CREAT | os.O_WRONLY)",
        MISSING,
        "os.path.join('a', 'b')",
        "a/b",
        "import os",
    ),
    Attack("write", "open(FOLDER + '/made', 'w')", MISSING, OWN_TEXT, "mine", "import io"),
    Attack("append", "open(FLAG, 'a')", MISSING, OWN_TEXT, "mine", "import io"),
    Attack("list_root", "os.listdir('/')", MISSING, "os.path.basename('/a/b')", "b", "import os"),
    Attack("list_folder", "os.listdir(FOLDER)", MISSING, "os.path.dirname('/a/b')", "/a", "import os"),
    Attack("scan", "list(os.scandir(FOLDER))", MISSING, "os.sep", "/", "import os"),
    Attack("walk", "list(os.walk('/'))", yields([]), "os.path.split('/a/b')", ["/a", "b"], "import os"),
    Attack(
        "glob", "glob.glob(FOLDER + '/*')", yields([]), "glob.has_magic('*') is not None", True, "import glob"
    ),
    Attack("exists", "os.path.exists(FLAG)", yields(False), "os.path.isabs('/a')", True, "import os"),
    Attack("access", "os.access('/', os.R_OK)", yields(False), "os.R_OK", 4, "import os"),
    Attack("stat", "os.stat(FLAG)", MISSING, "stat.S_ISDIR(0o040755)", True, "import os, stat"),
    Attack("remove", "os.unlink(FLAG)", MISSING, "os.path.splitext('a.txt')[1]", ".txt", "import os"),
    Attack(
        "rename",
        "os.rename(FLAG, FOLDER + '/x')",
        MISSING,
        "str(PurePath('a') / 'b')",
        "a/b",
        "import os\nfrom pathlib import PurePath",
    ),
    Attack("link", "os.link(FLAG, FOLDER + '/x')", MISSING, "os.extsep", ".", "import os"),
    Attack("symlink", "os.symlink('/etc', FOLDER + '/x')", MISSING, "os.curdir", ".", "import os"),
    Attack("make_folder", "os.makedirs(FOLDER + '/x')", MISSING, "os.pardir", "..", "import os"),
    Attack("truncate", "os.truncate(FLAG, 0)", MISSING, "os.linesep", "\n", "import os"),
    Attack("touch", "os.utime(FLAG)", MISSING, "os.name", "posix", "import os"),
    Attack("change_folder", "os.chdir('/')", MISSING, "os.getcwd()", "/", "import os"),
    Attack(
        "path_object",
        "Path(FLAG).read_text()",
        MISSING,
        "Path('/a/b.c').suffix",
        ".c",
        "from pathlib import Path",
    ),
    Attack(
        "copy",
        "shutil.copy(FLAG, FOLDER + '/x')",
        MISSING,
        "shutil.which('sh') is None",
        True,
        "import shutil",
    ),
    Attack(
        "temporary_file",
        "tempfile.mkstemp()",
        MISSING,
        "tempfile.SpooledTemporaryFile().write(b'ab')",
        2,
        "import tempfile",
    ),
    Attack(
        "database",
        "sqlite3.connect(FOLDER + '/made.db').execute('create table t(x)')",
        raises("sqlite3.OperationalError"),
        "sqlite3.connect(':memory:').execute('select 1').fetchone()",
        [1],
        "import sqlite3",
    ),
    Attack(
        "attached_database",
        "sqlite3.connect(':memory:').execute(f'attach \"{FLAG}\" as x')",
        raises("sqlite3.OperationalError"),
        "sqlite3.connect(':memory:').execute('attach \":memory:\" as x').fetchall()",
        [],
        "import sqlite3",
    ),
    Attack(
        "database_by_uri",
        "sqlite3.connect(f'file:{FLAG}?mode=ro&immutable=1', uri=True).execute('pragma schema_version')",
        raises("sqlite3.OperationalError"),
        "sqlite3.connect('file::memory:', uri=True).execute('pragma user_version').fetchone()",
        [0],
        "import sqlite3",
    ),
    Attack(
        "database_backup",
        "sqlite3.connect(':memory:').execute(f\"vacuum into '{FOLDER}/made.db'\")",
        raises("sqlite3.OperationalError"),
        "len(sqlite3.connect(':memory:').serialize()) >= 0",
        True,
        "import sqlite3",
    ),
    Attack(
        "archive",
        "zipfile.ZipFile(FLAG)",
        MISSING,
        "zipfile.ZipFile(io.BytesIO(), 'w').namelist()",
        [],
        "import io, zipfile",
    ),
    Attack(
        "source_of_a_module",
        "linecache.getlines(FLAG)",
        yields([]),
        "linecache.getline('script.py', 1)[:6]",
        "FOLDER",
        "import linecache",
    ),
    Attack(
        "entity_of_a_document",
        "parser = xml.parsers.expat.ParserCreate()\nparser.ExternalEntityRefHandler = lambda *names: open(names[2])\n"
        "parser.Parse(f'<!DOCTYPE a [<!ENTITY b SYSTEM \"{FLAG}\">]><a>&b;</a>', True)",
        MISSING,
        "xml.parsers.expat.ParserCreate().Parse('<a/>', True)",
        1,
        "import xml.parsers.expat",
    ),
    Attack(
        "log_file",
        "logging.basicConfig(filename=FOLDER + '/made')",
        MISSING,
        "logging.getLevelName(10)",
        "DEBUG",
        "import logging",
    ),
    Attack(
        "descriptors_of_the_worker",
        "[fd for fd in range(3, 300) if opens(fd)]",
        yields([]),
        "[fd for fd in range(3) if opens(fd)]",
        [0, 1, 2],
        OPENS,
    ),
    Attack(
        "descriptor_of_the_channel", "os.read(3, 100)", BAD_DESCRIPTOR, "len(os.read(0, 9))", 0, "import os"
    ),
    Attack("write_to_a_descriptor", "os.write(3, b'x')", BAD_DESCRIPTOR, "os.write(1, b'x')", 1, "import os"),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_no_file_of_the_host_is_reached(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_what_stays_in_memory_works(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)
