"""Files of a granted folder behave as files do: every script here gives the same in the sandbox as outside."""

import json
import subprocess
import sys

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.granted_files import FileRunner

TEXT = r"""
### truncate
f = open("a.bin", "w+b")
f.write(b"abcdef")
result = [f.truncate(2)]
f.close()
result.append(open("a.bin").read())
f = open("a.bin", "r+b")
f.truncate(4)
f.close()
result.append(list(open("a.bin", "rb").read()))
import os
os.truncate("a.bin", 1)
result.append(os.path.getsize("a.bin"))
### flushed is there for others
f = open("a.txt", "w")
f.write("one")
f.flush()
result = [open("a.txt").read()]
f.write("two")
f.flush()
result.append(open("a.txt").read())
f.seek(0)
f.write("X")
f.close()
result.append(open("a.txt").read())
### missing
import os
result = []
for do in (open, os.stat, os.remove, os.listdir, os.rmdir, os.readlink, os.scandir, os.chdir):
    try: do("nope")
    except FileNotFoundError as e: result.append([do.__name__, e.filename])
### os.path
import os
open("f", "w").write("abc")
os.mkdir("d")
p = os.path
result = [p.exists("f"), p.exists("x"), p.isfile("f"), p.isdir("f"), p.isdir("d"), p.getsize("f"), p.islink("f")]
result += [p.samefile("f", "./d/../f"), p.samefile("f", "d"), p.relpath(p.realpath("d/../f"))]
result.append(p.abspath("f") == p.join(os.getcwd(), "f"))
### folders
import os
os.makedirs("a/b/c")
os.makedirs("a/b/c", exist_ok=True)
open("a/b/f", "w").close()
result = [sorted(os.listdir("a/b")), [[d, sorted(ds), fs] for d, ds, fs in os.walk("a")]]
os.removedirs("a/b/c")
result.append(os.listdir("a/b"))
### working directory
import os
os.mkdir("d")
start = os.getcwd()
os.chdir("d")
open("f", "w").write("in d")
result = [os.path.relpath(os.getcwd(), start), os.listdir(".."), open("../d/f").read()]
os.chdir("..")
result.append(os.getcwd() == start)
### pathlib
from pathlib import Path
p = Path("d/e")
p.mkdir(parents=True)
(p / "f.txt").write_text("text")
(p / "g").write_bytes(b"bytes")
(p / "t").touch()
(p / "t").touch()
q = (p / "f.txt").rename(p / "h.txt")
result = [q.read_text(), (p / "g").read_bytes().decode(), q.exists(), q.is_file(), p.is_dir(), q.stat().st_size,
    sorted(map(str, Path(".").rglob("*"))), sorted(x.name for x in p.iterdir()),
    sorted(map(str, Path().glob("*/*/*.txt")))]
q.unlink()
q.unlink(missing_ok=True)
result.append(q.exists())
result.append(Path("d").resolve() == Path.cwd() / "d")
### shutil
import shutil, os
open("a", "w").write("A")
shutil.copy("a", "b")
shutil.copy2("a", "c")
os.mkdir("d")
shutil.copyfile("a", "d/a")
shutil.copytree("d", "e")
shutil.move("b", "e/b")
shutil.rmtree("d")
result = [sorted(os.listdir()), sorted(os.listdir("e")), open("e/b").read()]
shutil.make_archive("z", "zip", "e")
shutil.unpack_archive("z.zip", "u")
result.append(sorted(os.listdir("u")))
### tempfile
import tempfile, os
result = []
with tempfile.TemporaryDirectory(dir=".") as d:
    open(os.path.join(d, "x"), "w").write("in d")
    result.append(os.listdir(d))
with tempfile.NamedTemporaryFile("w+", dir=".") as f:
    f.write("named")
    f.flush()
    result.append(open(f.name).read())
with tempfile.SpooledTemporaryFile(max_size=3, dir=".") as f:
    f.write(b"spooled")
    f.seek(0)
    result.append(f.read().decode())
number, name = tempfile.mkstemp(dir=".")
os.close(number)
os.remove(name)
result.append(os.listdir())
### descriptors
import os
n = os.open("f", os.O_RDWR | os.O_CREAT)
os.write(n, b"abcdef")
os.lseek(n, 1, os.SEEK_SET)
result = [os.read(n, 3).decode(), os.fstat(n).st_size]
os.ftruncate(n, 2)
os.fsync(n)
result.append(open("f").read())
with os.fdopen(n, "r+") as f: f.write("Z")
result.append(open("f").read())
try: os.close(n)
except OSError: result.append("closed")
with open("f") as f: result.append([os.fstat(f.fileno()).st_size, os.read(f.fileno(), 1).decode()])
### renamed and removed while open
import os
f = open("a", "w")
f.write("text")
os.rename("a", "b")
f.close()
result = [os.listdir(), open("b").read()]
f = open("b", "a")
f.write("more")
os.remove("b")
f.close()
result.append(os.listdir())
### archives
import zipfile, tarfile, os
open("f", "w").write("x" * 1000)
with zipfile.ZipFile("f.zip", "w", zipfile.ZIP_DEFLATED) as z: z.write("f")
with zipfile.ZipFile("f.zip", "a") as z: z.writestr("g", "more")
with tarfile.open("f.tar.gz", "w:gz") as t: t.add("f")
os.remove("f")
result = [zipfile.ZipFile("f.zip").namelist(), len(zipfile.ZipFile("f.zip").read("f"))]
# Python 3.11.2, which Debian 12 has, knows no filters yet.
tarfile.open("f.tar.gz").extractall("t", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
result.append(len(open("t/f").read()))
### sqlite3
import sqlite3, os
c = sqlite3.connect("f.db")
c.execute("create table t(a, b)")
c.executemany("insert into t values (?, ?)", [(i, str(i)) for i in range(100)])
c.commit()
c.close()
with sqlite3.connect("f.db") as d: d.execute("update t set b = ? where a = 1", ["one"])
found = sqlite3.connect("f.db").execute("select count(*), max(b) from t").fetchall()
result = [found, os.path.getsize("f.db") > 0]
e = sqlite3.connect("file:f.db?mode=ro", uri=True)
try: e.execute("delete from t")
except sqlite3.OperationalError: result.append("read only")
try: sqlite3.connect("file:x.db?mode=rw", uri=True)
except sqlite3.OperationalError: result.append("missing")
f = sqlite3.connect("f.db")
f.execute("delete from t")
f.close()
result.append(sqlite3.connect("f.db").execute("select count(*) from t").fetchall())
### sqlite3 and what it commits by itself
import sqlite3, os
def init():
    c = sqlite3.connect("app.db")
    c.execute("create table if not exists t(x)")
kept = sqlite3.connect("kept.db", isolation_level=None)
kept.execute("create table t(x)")
kept.executescript("insert into t values (1); insert into t values (2);")
init()
with sqlite3.connect("app.db") as c: c.execute("insert into t values(1)")
result = [sqlite3.connect(n).execute("select sum(x) from t").fetchall() for n in ("app.db", "kept.db")]
kept.execute("begin")
kept.execute("insert into t values (4)")
result.append(sqlite3.connect("kept.db").execute("select sum(x) from t").fetchall())
kept.execute("commit")
result.append([sqlite3.connect("kept.db").execute("select sum(x) from t").fetchall(), os.path.getsize("kept.db")])
### modules of one's own
import importlib, os, runpy, sys
os.makedirs("mine/inner")
open("mine/apart.py", "w").write("import mine.inner.deep as d\nVALUE = d.VALUE + 1\n")
open("mine/inner/deep.py", "w").write("VALUE = 1\n")
sys.path.insert(0, os.getcwd())
importlib.invalidate_caches()
import mine.apart
result = [mine.apart.VALUE, os.path.basename(mine.apart.__file__)]
open("mine/apart.py", "w").write("VALUE = 'again'\n")
result += [importlib.reload(mine.apart).VALUE, runpy.run_path("mine/inner/deep.py")["VALUE"]]
sys.path.pop(0)
"""
"""Each section leaves what it saw in `result`."""

SCRIPTS = {name: script for name, _, script in (each.partition("\n") for each in TEXT.split("\n### ")[1:])}

OUTSIDE = """
import json, os, sys, tempfile
results = {}
for name, script in json.load(sys.stdin).items():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        space = {}
        exec(script, space)
        results[name] = space["result"]
        os.chdir("/")
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def outside() -> dict[str, Json]:
    """Each script's result on real files."""
    command, scripts = [sys.executable, "-c", OUTSIDE], json.dumps(SCRIPTS)
    done = subprocess.run(command, input=scripts, capture_output=True, text=True, check=True, timeout=60)
    printed: dict[str, Json] = json.loads(done.stdout)
    return printed


@pytest.mark.parametrize("name", SCRIPTS)
async def test_files_behave_as_outside(files: FileRunner, outside: dict[str, Json], name: str) -> None:
    result = await files(SCRIPTS[name] + "\nresult")
    assert result.error is None, result.error
    assert (result.value, result.stdout, result.notices) == (outside[name], "", ())
