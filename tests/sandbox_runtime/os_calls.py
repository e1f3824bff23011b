"""Calls of each function of `os` that takes files, in every form that its signature allows and in some that it doesn't.

The text is a script: it leaves in `result` what each call gave, by the call.
"""

CALLS = r'''
import inspect, os, shutil

# Those whose signature Python itself cannot tell.
TOLD = {
    "chmod": "path, mode, *, dir_fd=None, follow_symlinks=True",
    "utime": "path, times=None, *, ns=None, dir_fd=None, follow_symlinks=True",
}
NAMES = """
access chdir chmod close fdatasync fstat fsync ftruncate get_inheritable isatty listdir lseek lstat mkdir open pread
pwrite read readlink remove rename replace rmdir scandir set_inheritable stat truncate unlink utime write
""".split()
VALUES = {
    "fd": "n", "length": "2", "offset": "1", "data": "b'x'", "buffer": "b'x'", "position": "1", "whence": "0",
    "mode": "0o600", "flags": "os.O_RDWR", "src": "'f'", "dst": "'g'", "times": "(1, 1)", "ns": "(1, 1)",
    "inheritable": "False", "follow_symlinks": "True", "effective_ids": "False",
}
PATHS = {"rmdir": "'d'", "mkdir": "'new'", "chdir": "'d'", "listdir": "'d'", "scandir": "'d'"}


def calls(name):
    """Texts of calls: right ones, and ones with too much, too little and under a wrong name."""
    function = eval("lambda " + TOLD[name] + ": 0") if name in TOLD else getattr(os, name)
    parameters = list(inspect.signature(function).parameters.values())
    only_named = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    ordered = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    needed = [p for p in ordered if p.default is p.empty]

    def value(p):
        if p.name == "mode" and name == "access":
            return "6"
        return PATHS.get(name, "'f'") if p.name == "path" else VALUES.get(p.name, "None")

    def named(chosen):
        return [p.name + "=" + value(p) for p in chosen]

    lists = [[value(p) for p in needed], [value(p) for p in ordered], named(needed), named(ordered)]
    lists += [[value(p) for p in needed] + named([p]) for p in only_named if name != "utime" or p.name != "ns"]
    lists += [named(needed + [p]) for p in only_named if name != "utime" or p.name != "ns"]
    lists += [[value(p) for p in ordered[:i]] + named(ordered[i:]) for i in range(1, len(ordered))]
    lists += [[value(p) for p in needed[:-1]], named(needed[1:]), [value(p) for p in ordered] + ["0"]]
    lists += [[value(p) for p in needed] + ["nothing=1"], [value(p) for p in needed] + named(needed[:1])]
    if name == "utime":
        lists += [["'f'", "ns=(1, 1)"], ["path='f'", "ns=(1, 1)"]]
    if any(p.name == "path" for p in needed) and name in ("stat", "truncate", "chmod", "utime"):
        lists += [["n"] + [value(p) for p in needed[1:]], ["path=n"] + named(needed[1:])]
    return dict.fromkeys(f"os.{name}({', '.join(each)})" for each in lists)


def told(value):
    if isinstance(value, os.stat_result):
        return value.st_size
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list) or hasattr(value, "close"):
        return sorted(getattr(entry, "name", entry) for entry in value)
    return value


def tried(call):
    """What a call gives, and what is there afterwards."""
    os.mkdir("d")
    open("d/x", "w").close() if "dir" in call and "rmdir" not in call else None
    with open("f", "w") as file:
        file.write("abc")
    n = os.open("f", os.O_RDWR)
    try:
        value = told(eval(call, {"os": os, "n": n}))
        if "os.open" in call:
            os.close(value)
            value = "a number"
    except Exception as error:
        value = type(error).__name__
    if call.startswith("os.chdir"):
        os.chdir(start)
    try:
        os.close(n)
    except OSError:
        pass
    left = {name: os.path.isdir(name) or open(name).read() for name in sorted(os.listdir())}
    for name in os.listdir():
        shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)
    return [value, left]


start = os.getcwd()
result = {call: tried(call) for name in NAMES for call in calls(name)}
'''
