"""Functions of Python's own that read what they are given and never await it."""

import collections
import datetime
import re

from sandbox_runtime.guest.library_names import Path, is_library_function


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What a module's functions are given they read; asyncio, contextlib, functools, types and the like pass it on.
_MODULES = _words(
    "base64 binascii bisect calendar cmath collections copy csv datetime decimal difflib email fnmatch fractions "
    "glob hashlib heapq hmac html io ipaddress itertools json locale logging math numbers os pathlib platform "
    "pprint random re secrets shutil statistics string struct sys tempfile textwrap time tomllib unicodedata "
    "urllib uuid warnings xml zlib zoneinfo"
)
_BUILTINS = _words(
    "abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter float format "
    "frozenset hasattr hash hex id int isinstance issubclass iter len list map max memoryview min next oct open "
    "ord pow print range repr reversed round set slice sorted str sum tuple type zip"
)
# Methods that put their arguments into the object.
WRITERS = _words("add append appendleft extend extendleft insert put put_nowait setdefault update")
# Those of them that are as likely to belong to a class of the script's own.
UNCLEAR = _words("add put put_nowait")
# Methods that only read their arguments; what they return may come out of the object.
READERS = (
    frozenset(
        name
        for kind in (
            str,
            list,
            dict,
            set,
            collections.deque,
            collections.Counter,
            re.Pattern,
            datetime.datetime,
        )
        for name in dir(kind)
        if not name.startswith("_")
    )
    | _words("debug empty error full get_nowait info qsize task_done warning")
    | _words("write writelines writerow writerows")
) - WRITERS
# The first argument of these is called with what lies in the others.
CALLERS = {
    ("builtins", "map"),
    ("builtins", "filter"),
    ("itertools", "starmap"),
    ("itertools", "filterfalse"),
}
# Methods that give what awaiting something gave: of a task, of a runner, of a loop.
GIVE_AWAITED = {"result", "run", "run_until_complete"}
# With one of these, any variable or attribute can be reached by a name that only the running script knows.
REFLECTS_ON_VARIABLES = {("builtins", name) for name in ("eval", "exec", "globals", "locals", "vars")}
REFLECTS_ON_ATTRIBUTES = {
    ("builtins", name) for name in ("delattr", "eval", "exec", "getattr", "setattr", "vars")
}
# What a coroutine can be asked for without being awaited.
OF_COROUTINES = _words("__await__ close cr_await cr_code cr_frame cr_running send throw")


def only_reads(path: Path | None) -> bool:
    """True if the function of that path reads its arguments, and what it returns is made of them."""
    if path is None:
        return False
    if path[0] == "builtins":
        return path[1] in _BUILTINS
    return path[0] in _MODULES or is_library_function(path)
