"""Ways to leave something behind for a later run, and ways to look for it: rows for runs and for sessions."""

from dataclasses import dataclass

from manifests.json_value import Json
from tests.security.hostile import OWN_FRAMES


@dataclass(frozen=True)
class Leak:
    """`leave` leaves something, `look` finds it: `found` in the same run or session, `clean` anywhere else."""

    name: str
    leave: str
    look: str
    found: Json
    clean: Json

    def __str__(self) -> str:
        return self.name


LEAKS = [
    Leak("global", "x = 1", "'x' in globals()", True, False),
    Leak("module", "import sys\nsys.modules['leak'] = sys", "import sys\n'leak' in sys.modules", True, False),
    Leak(
        "patched_builtin",
        "import builtins\nbuiltins.abs = len",
        "abs('aaa') if abs is len else abs(-7)",
        3,
        7,
    ),
    Leak(
        "module_of_the_portal",
        "import portal\nportal.leak = 1",
        "import portal\n'leak' in vars(portal)",
        True,
        False,
    ),
    Leak(
        "class_of_the_interpreter",
        OWN_FRAMES + "type(interpreter_itself()).leak = 1",
        OWN_FRAMES + "hasattr(interpreter_itself(), 'leak')",
        True,
        False,
    ),
    Leak(
        "random_state",
        "import random\nrandom.seed(7)",
        "import random\nrandom.getstate() == random.Random(7).getstate()",
        True,
        False,
    ),
    Leak(
        "filter_of_warnings",
        "import warnings\nwarnings.simplefilter('error')",
        "import warnings\nwarnings.filters[0][0]",
        "error",
        "default",
    ),
    Leak(
        "context_variable",
        "import contextvars, sys\nsys.leak = contextvars.ContextVar('leak')\nsys.leak.set(1)",
        "import contextvars\nlen(contextvars.copy_context())",
        1,
        0,
    ),
    Leak(
        "open_descriptor",
        "import os\nos.close(0)",
        "import os\ntry: os.fstat(0); x = 1\nexcept OSError: x = 0\nx",
        0,
        1,
    ),
    Leak(
        "subclass",
        "class Leak(Exception): pass",
        "any(c.__name__ == 'Leak' for c in Exception.__subclasses__())",
        True,
        False,
    ),
]
