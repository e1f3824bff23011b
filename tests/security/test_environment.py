"""What the process was started with, on what machine and by whom, is not there to be read."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, raises, yields
from tests.security.bait import VARIABLE

pytestmark = pytest.mark.anyio

ABSENT = raises("AttributeError")
WHO = """
import platform
def who():
    return [platform.node(), platform.machine(), platform.processor()]
"""

ATTACKS = [
    Attack("all_variables", "dict(os.environ)", yields({}), "os.environ.get('A', 'b')", "b", "import os"),
    Attack("one_variable", f"os.getenv({VARIABLE!r})", yields(None), "os.getenv('A', 'b')", "b", "import os"),
    Attack(
        "bytes_of_variables", "len(os.environb)", yields(0), "os.fsencode('a').decode()", "a", "import os"
    ),
    Attack(
        "variables_of_the_interpreter",
        "dict(posix.environ)",
        yields({}),
        "len(os.environ)",
        0,
        "import os, posix",
    ),
    Attack(
        "variables_through_the_file_system",
        "open('/proc/self/environ').read()",
        raises("FileNotFoundError"),
        "os.environ.setdefault('A', 'b')",
        "b",
        "import os",
    ),
    Attack("expanded_path", "os.path.expandvars('$HOME')", yields("$HOME"), "os.path.sep", "/", "import os"),
    Attack("home", "os.path.expanduser('~')", yields("~"), "os.path.expanduser('a')", "a", "import os"),
    Attack(
        "user",
        "getpass.getuser()",
        raises("OSError"),
        "getpass.GetPassWarning.__name__",
        "GetPassWarning",
        "import getpass",
    ),
    Attack("user_number", "os.getuid()", ABSENT, "os.getpid() > 0", True, "import os"),
    Attack("parent", "os.getppid()", ABSENT, "hasattr(os, 'getpid')", True, "import os"),
    Attack("login", "os.getlogin()", ABSENT, "hasattr(os, 'environ')", True, "import os"),
    Attack(
        "arguments", "[*sys.argv, *sys.orig_argv]", yields(["script.py"]), "len(sys.argv)", 1, "import sys"
    ),
    Attack("executable", "sys.executable", yields(""), "sys.version_info.major", 3, "import sys"),
    Attack("machine", "who()", yields(["(none)", "wasm32", ""]), "platform.system()", "wasi", WHO),
    Attack(
        "name_of_the_machine",
        "socket.gethostname()",
        yields("(none)"),
        "socket.htons(1)",
        256,
        "import socket",
    ),
    Attack("load", "os.getloadavg()", ABSENT, "os.cpu_count()", 1, "import os"),
    Attack("terminal", "os.get_terminal_size()", ABSENT, "os.isatty(0)", False, "import os"),
    Attack("typed_input", "sys.__stdin__.read()", yields(""), "sys.stdin.read()", "", "import sys"),
    Attack(
        "time_zone",
        "list(time.tzname)",
        yields(["UTC", "UTC"]),
        "time.gmtime(0).tm_year",
        1970,
        "import time",
    ),
    Attack(
        "locale_of_the_operator",
        "list(locale.setlocale(locale.LC_ALL, '').split(';'))[:1]",
        yields(["C.UTF-8"]),
        "locale.str(1.5)",
        "1.5",
        "import locale",
    ),
    Attack(
        "folders_of_the_build",
        "[path for path in sys.path if 'home' in path or 'tmp' in path or 'site-packages' in path]",
        yields([]),
        "isinstance(sys.path, list)",
        True,
        "import sys",
    ),
    Attack(
        "packages_of_the_operator",
        "importlib.metadata.version('mcp-code-portal')",
        raises("importlib.metadata.PackageNotFoundError"),
        "importlib.metadata.PackagePath('a').name",
        "a",
        "import importlib.metadata",
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_nothing_of_the_environment_is_told(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_questions_about_oneself_are_answered(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)
