"""Which parts of the library a script mentions and uses."""

import pytest

from sandbox_runtime.guest.script import Script

NAMESPACES = frozenset({"git", "files", "weather"})

USES = [
    ("await git.log()", [("git", "log", 1)]),
    ("x = 1\nawait tools.git.log()", [("git", "log", 2)]),
    ("from tools import git\nawait git.log()", [("git", "log", 2)]),
    ("from tools import git as g\nawait g.log()", [("git", "log", 2)]),
    ("import git\nstart = git.log", [("git", "log", 2)]),
    ("from tools.git import log as l\nawait l()", [("git", "log", 1), ("git", "log", 2)]),
    ("from git import *", []),
    ("g = git\nawait g.log()", [("git", "log", 2)]),
    ("await tools.nothing.log()", [("nothing", "log", 1)]),
    ("from tools import nothing", [("nothing", "", 1)]),
    ("git.log.__doc__, git.__name__, tools.__path__", [("git", "log", 1)]),
    ("git.log\ngit.log; files.read", [("git", "log", 1), ("files", "read", 2), ("git", "log", 2)]),
    ("def f(git):\n    git.log()", []),
    ("git = {}\ngit.log", []),
    ("x.git.log()", []),
    ("'git.log()'", []),
    ("try:\n    git.maybe\nexcept AttributeError:\n    git.log", [("git", "log", 4)]),
    ("try:\n    import git, tools.nothing\nexcept ImportError:\n    pass", []),
    ("try:\n    git.maybe()\nexcept:\n    pass", []),
    ("try:\n    git.log\nexcept ToolError:\n    git.maybe", [("git", "log", 2), ("git", "maybe", 4)]),
    ("if hasattr(git, 'maybe'):\n    git.maybe()\ngit.log", [("git", "log", 3)]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "uses"), USES)
def test_uses_are_what_can_be_seen_in_the_text(text: str, uses: list[tuple[str, str, int]]) -> None:
    assert Script.parse(text, NAMESPACES).uses == uses


NAMES = [
    ("git.log", {"git"}),
    ("from tools import git as g, weather", {"git", "weather"}),
    ("import files", {"files"}),
    ("tools.git.log(); x.files", {"git"}),
    ("from tools.git import log", {"git"}),
    ("getattr(tools, 'git')", {"git"}),
    ("import importlib\nimportlib.import_module('tools.files')", {"files"}),
    ("eval('git.log()')", {"git"}),
    ("'git'", set()),
    ("x = 1", set()),
    ("git = 1\ngit", set()),
    ("git = git.log()", {"git"}),
]


@pytest.mark.parametrize(("text", "names"), NAMES)
def test_names_are_the_namespaces_a_script_mentions(text: str, names: set[str]) -> None:
    assert Script.parse(text, NAMESPACES).names == names
