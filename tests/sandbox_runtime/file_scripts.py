"""Scripts that use files in every way Python has; each leaves what it saw in `result`."""

from collections.abc import Iterator


def scripts() -> dict[str, str]:
    return dict(_sections())


def _sections() -> Iterator[tuple[str, str]]:
    for section in _TEXT.split("\n### ")[1:]:
        name, _, script = section.partition("\n")
        yield name, script


_TEXT = r"""
### text
open("a.txt", "w").write("one\ntwo\n")
result = open("a.txt").read()
### append
open("a.txt", "a").write("one\n")
f = open("a.txt", "a")
result = [f.tell()]
f.write("two\n")
f.flush()
f.write("three\n")
f.close()
result.append(open("a.txt").read())
### append and read
open("a.txt", "w").write("one")
f = open("a.txt", "a+")
f.write("two")
f.seek(0)
result = [f.read()]
f.seek(0)
f.write("three")
f.close()
result.append(open("a.txt").read())
### change in place
open("a.txt", "w").write("abcdef")
f = open("a.txt", "r+")
f.seek(2)
f.write("XY")
f.close()
result = open("a.txt").read()
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
### unbuffered and line buffered
f = open("a.bin", "wb", buffering=0)
f.write(b"ab")
f.write(b"c")
f.close()
g = open("b.txt", "w", buffering=1)
g.write("line\n")
result = [open("a.bin").read(), open("b.txt").read()]
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
### exclusive
open("a.txt", "x").write("1")
try: open("a.txt", "x")
except FileExistsError as e: result = [e.filename]
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
### scandir
import os
os.mkdir("d")
open("f", "w").write("abc")
with os.scandir() as found:
    result = sorted([e.name, e.path, e.is_file(), e.is_dir(), e.stat().st_size * e.is_file()] for e in found)
result.append(sorted(os.fspath(e) for e in os.scandir("d/..")))
### rename
import os
open("a", "w").write("A")
open("b", "w").write("B")
os.rename("a", "b")
os.mkdir("d")
os.replace("b", "d/c")
os.rename("d", "e")
result = [os.listdir(), open("e/c").read()]
### working directory
import os
os.mkdir("d")
start = os.getcwd()
os.chdir("d")
open("f", "w").write("in d")
result = [os.path.relpath(os.getcwd(), start), os.listdir(".."), open("../d/f").read()]
os.chdir("..")
result.append(os.getcwd() == start)
### access
import os
open("f", "w").close()
result = [os.access("f", os.R_OK | os.W_OK), os.access("x", os.F_OK)]
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
### glob
import glob, os
os.makedirs("a/b")
for n in ("x.txt", "a/y.txt", "a/b/z.txt", ".hidden.txt"): open(n, "w").close()
result = [sorted(glob.glob("*.txt")), sorted(glob.glob("**/*.txt", recursive=True)), sorted(glob.iglob("a/*"))]
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
with tempfile.TemporaryFile(dir=".") as f:
    f.write(b"nameless")
    f.seek(0)
    result.append(f.read().decode())
with tempfile.SpooledTemporaryFile(max_size=3, dir=".") as f:
    f.write(b"spooled")
    f.seek(0)
    result.append(f.read().decode())
number, name = tempfile.mkstemp(dir=".")
os.write(number, b"made")
os.close(number)
result.append(open(name).read())
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
### safe replacement
import os, tempfile
with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as f:
    f.write("new")
    f.flush()
    os.fsync(f.fileno())
os.replace(f.name, "f")
result = [os.listdir(), open("f").read()]
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
### csv
import csv
rows = [{"a": "1", "b": "x,y"}, {"a": "ä", "b": "line\nbreak"}]
with open("f.csv", "w", newline="") as f:
    w = csv.DictWriter(f, ["a", "b"])
    w.writeheader()
    w.writerows(rows)
result = [list(csv.DictReader(open("f.csv", newline=""))), open("f.csv", "rb").read().hex()]
### json pickle configparser
import json, pickle, configparser
json.dump({"a": [1]}, open("f.json", "w"))
pickle.dump([2], open("f.pkl", "wb"))
c = configparser.ConfigParser()
c["s"] = {"k": "v"}
c.write(open("f.ini", "w"))
d = configparser.ConfigParser()
result = [json.load(open("f.json")), pickle.load(open("f.pkl", "rb")), d.read("f.ini"), d["s"]["k"]]
### archives
import zipfile, tarfile, gzip, os
open("f", "w").write("x" * 1000)
with zipfile.ZipFile("f.zip", "w", zipfile.ZIP_DEFLATED) as z: z.write("f")
with zipfile.ZipFile("f.zip", "a") as z: z.writestr("g", "more")
with tarfile.open("f.tar.gz", "w:gz") as t: t.add("f")
with gzip.open("f.gz", "wt") as g: g.write("zipped")
os.remove("f")
archive = zipfile.ZipFile("f.zip")
result = [archive.namelist(), len(archive.read("f")), gzip.open("f.gz", "rt").read()]
tarfile.open("f.tar.gz").extractall("t", filter="data")
result.append(len(open("t/f").read()))
### logging xml shelve
import logging, shelve, dbm.dumb
import xml.etree.ElementTree as ET
logging.basicConfig(filename="log", level="INFO", force=True, format="%(message)s")
logging.info("one")
logging.info("two")
ET.ElementTree(ET.Element("a")).write("f.xml")
with dbm.dumb.open("d", "c") as d: d["k"] = "v"
with shelve.open("s") as s: s["x"] = [1]
with shelve.open("s") as s: y = s["x"]
result = [open("log").read(), ET.parse("f.xml").getroot().tag, dbm.dumb.open("d")["k"].decode(), y]
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
### sqlite3 and names that change while it is open
import sqlite3, os
c = sqlite3.connect("a.db")
c.execute("create table t(x)")
os.rename("a.db", "b.db")
result = [os.listdir()]
c.close()
d = sqlite3.connect("b.db")
d.execute("insert into t values (1)")
os.rename("b.db", "c.db")
d.commit()
result.append([os.listdir(), sqlite3.connect("c.db").execute("select x from t").fetchall()])
d.close()
e = sqlite3.connect("new.db")
e.execute("create table t(x)")
os.remove("new.db")
result.append([os.listdir(), e.execute("select x from t").fetchall()])
e.close()
os.mkdir("f")
f = sqlite3.connect("f/new.db")
f.execute("create table t(x)")
try: os.rmdir("f")
except OSError: result.append("not empty")
f.close()
result.append(sorted(os.listdir()))
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
### functions of os as parts of a class
import os
class C:
    remove, exists, where = os.remove, os.path.exists, os.getcwd
c = C()
open("f", "w").close()
result = [c.remove("f"), os.path.exists("f"), c.where() == os.getcwd()]
### scandir of bytes
import glob, os
os.mkdir("d")
open("d/f.txt", "w").close()
with os.scandir(b"d") as found: result = [[e.name.decode(), e.path.decode()] for e in found]
result += [n.decode() for n in glob.glob(b"d/*.txt")]
### compiled modules
import os, py_compile, runpy
open("m.py", "w").write("x = 7")
py_compile.compile("m.py", "m.pyc", doraise=True)
result = [os.path.getsize("m.pyc") > 16, runpy.run_path("m.pyc")["x"]]
"""
