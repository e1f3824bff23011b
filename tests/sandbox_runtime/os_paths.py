"""Calls of everything that takes a path, with every way of writing one.

The text is a script: it leaves in `result` what each call gave and what was there afterwards, by the call. `chosen`
says which kinds of calls.
"""

PATHS = r'''
import errno, glob, os, shutil
from pathlib import Path

WAYS = """
f d e g f/ d/ g/ f// f/. d/. g/. f/.. d/.. g/.. f/../f d/../f g/../f d/../d/ d/../g d/x/ f/x f/x/ g/x g/x/ . ./ .. ../
../top/f ../top/f/ d/../../top/d/../f d/x/../x e/../..
""".split()
KINDS = {
    "looks": """
os.stat({}).st_mode >> 12 ; os.lstat({}).st_mode >> 12 ; os.access({}, 0) ; os.access({}, 4) ; os.path.exists({})
os.path.lexists({}) ; os.path.isfile({}) ; os.path.isdir({}) ; os.path.islink({}) ; sorted(os.listdir({}))
sorted(e.name for e in os.scandir({})) ; os.chdir({}) ; os.readlink({}) ; os.utime({}) ; os.chmod({}, 0o700)
os.path.samefile({}, "f") ; sorted(sorted(f) for _, _, f in os.walk({})) ; sorted(glob.glob({}))
sorted(glob.glob({} + "/*")) ; Path({}).exists() ; Path({}).is_file() ; Path({}).is_dir()
sorted(map(str, Path({}).iterdir())) ; open({}).read() ; Path({}).read_text() ; os.close(os.open({}, os.O_RDWR))
os.path.realpath({}) == os.path.realpath("f")""",
    "writes": """
open({}, "w").close() ; open({}, "x").close() ; open({}, "a").close() ; open({}, "r+").close()
os.close(os.open({}, os.O_WRONLY | os.O_TRUNC)) ; os.close(os.open({}, os.O_WRONLY | os.O_APPEND))
os.truncate({}, 1) ; Path({}).touch() ; shutil.copyfile("f", {}) ; shutil.copy("f", {})""",
    "names": """
os.mkdir({}) ; os.makedirs({}) ; os.makedirs({}, exist_ok=True) ; os.rmdir({}) ; os.remove({}) ; os.removedirs({})
os.rename({}, "new") ; os.replace({}, "new/") ; os.rename("f", {}) ; os.rename("d", {}) ; os.rename("g", {})
os.rename({}, "e") ; os.renames({}, "a/b") ; Path({}).mkdir(exist_ok=True) ; Path({}).unlink() ; shutil.move({}, "new")
shutil.move("f", {})""",
}


def found():
    """Everything that is there."""
    listed = {}
    for folder, folders, files in os.walk(top):
        for name in files:
            with open(os.path.join(folder, name)) as file:
                listed[os.path.join(folder, name)[len(top):]] = file.read()
        listed.update((os.path.join(folder, name)[len(top):], None) for name in folders)
    return listed


def build():
    shutil.rmtree(top, ignore_errors=True)
    for name in ("", "d", "e"):
        os.mkdir(os.path.join(top, name))
    for name in ("f", "d/x"):
        with open(os.path.join(top, name), "w") as file:
            file.write("abc")
    os.chdir(top)


def tried(call):
    """What a call gives, and what is there afterwards."""
    try:
        value = eval(call)
        value = value if isinstance(value, (bool, int, list)) else str(value).replace(os.path.dirname(top), "")
    except OSError as error:
        value = [type(error).__name__, errno.errorcode.get(error.errno)]
    except shutil.Error as error:
        value = "shutil.Error"
    os.chdir(os.path.dirname(top))
    left = found() if kind != "looks" else same
    if left != same:
        build()
    os.chdir(top)
    return [value, None if left == same else left]


top = os.path.join(os.getcwd(), "top")
result = {}
for kind in chosen:
    build()
    same = found()
    for form in KINDS[kind].strip().replace("\n", " ; ").split(" ; "):
        for way in WAYS:
            call = form.format(repr(way))
            result[call] = tried(call)
'''
