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
        "replaced_module",
        "import sys\nsys.modules['math'] = sys",
        "import math\nmath.__name__",
        "sys",
        "math",
    ),
    Leak(
        "patched_function",
        "import textwrap\ntextwrap.dedent = len",
        "import textwrap\ntextwrap.dedent('77')",
        2,
        "77",
    ),
    Leak(
        "patched_builtin",
        "import builtins\nbuiltins.abs = len",
        "abs('aaa') if abs is len else abs(-7)",
        3,
        7,
    ),
    Leak("namespace", "git.leak = 1", "'leak' in vars(git)", True, False),
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
        "variable_of_the_environment",
        "import os\nos.environ['LEAK'] = 'x'",
        "import os\nos.getenv('LEAK')",
        "x",
        None,
    ),
    Leak(
        "random_state",
        "import random\nrandom.seed(7)",
        "import random\nrandom.getstate() == random.Random(7).getstate()",
        True,
        False,
    ),
    Leak(
        "recursion_limit",
        "import sys\nsys.setrecursionlimit(77)",
        "import sys\nsys.getrecursionlimit()",
        77,
        1000,
    ),
    Leak(
        "finder",
        "import sys\nsys.meta_path.append('leak')",
        "import sys\n'leak' in sys.meta_path",
        True,
        False,
    ),
    Leak(
        "trace",
        "import sys\nsys.settrace(lambda *_: None)",
        "import sys\nsys.gettrace() is None",
        False,
        True,
    ),
    Leak(
        "filter_of_warnings",
        "import warnings\nwarnings.simplefilter('error')",
        "import warnings\nwarnings.filters[0][0]",
        "error",
        "default",
    ),
    Leak(
        "precision",
        "import decimal\ndecimal.getcontext().prec = 3",
        "import decimal\ndecimal.getcontext().prec",
        3,
        28,
    ),
    Leak(
        "context_variable",
        "import contextvars, sys\nsys.leak = contextvars.ContextVar('leak')\nsys.leak.set(1)",
        "import contextvars\nlen(contextvars.copy_context())",
        1,
        0,
    ),
    Leak(
        "codec",
        "import codecs\ncodecs.register_error('leak', len)",
        "import codecs\ntry: codecs.lookup_error('leak'); x = 1\nexcept LookupError: x = 0\nx",
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
    Leak(
        "interned_memory",
        "kept = ['leak-' * 10_000_000]",
        "import sys\nany('leak-' in x[0] for x in [globals().get('kept', ['-'])])",
        True,
        False,
    ),
]
