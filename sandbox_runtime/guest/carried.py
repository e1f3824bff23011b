"""What the component carries: the standard library without what cannot work here, and the packages of the build."""

import importlib
import os

from sandbox_runtime.guest.frozen_files import PACKAGES, FrozenFiles
from sandbox_runtime.guest.frozen_modules import FrozenModules

_LIBRARY = "/python"
# Without tkinter and curses, which are shells around C; CPython's own tests; and what lies there for the build.
_LEFT_OUT = """
    __pycache__ site-packages test tests idlelib tkinter turtledemo turtle.py curses _bundled
    __hello__.py __phello__ config-3.14-wasm32-wasi
""".split()  # noqa: SIM905
_IMPORTED_AHEAD = """
    abc argparse array ast asyncio base64 bisect binascii calendar cmath codecs collections collections.abc
    concurrent.futures configparser contextlib contextvars copy csv dataclasses datetime decimal difflib
    email.utils enum errno fnmatch fractions functools glob graphlib gzip hashlib heapq hmac html html.entities
    html.parser importlib inspect io ipaddress itertools json keyword linecache locale logging math numbers
    operator os pathlib pickle platform pprint queue random re secrets shlex shutil signal sqlite3 statistics
    string string.templatelib struct tempfile textwrap threading time timeit tokenize tomllib traceback types
    typing unicodedata urllib.parse uuid warnings weakref xml.etree.ElementTree zipfile zlib zoneinfo
    encodings.idna encodings.latin_1 encodings.ascii encodings.utf_16 importlib.metadata importlib.resources
    dateutil.parser dateutil.relativedelta dateutil.rrule dateutil.tz jinja2 jmespath more_itertools tabulate yaml
""".split()  # noqa: SIM905


def install() -> FrozenFiles:
    """Freeze the library and the packages; runs while the component is built."""
    frozen = FrozenModules.install()
    frozen.freeze(_LIBRARY, _LIBRARY, left_out=_LEFT_OUT)
    packages = os.path.join(os.path.dirname(__file__), os.pardir, os.pardir, "packages")
    frozen.freeze(packages, PACKAGES)
    frozen.files.freeze(packages, PACKAGES)
    for name in _IMPORTED_AHEAD:
        importlib.import_module(name)
    return frozen.files
