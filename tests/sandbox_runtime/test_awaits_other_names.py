"""Names like the library's that mean something else in the script."""

import pytest

from tests.sandbox_runtime.right_scripts import run_unchanged, scripts

RIGHT = r"""
git = {"f": lambda x: x}
git["f"](1)
---
def git():
    return 1
git()
---
class git:
    @staticmethod
    def f(x):
        return x
git.f(x=1)
---
def call(git):
    return git.f(1)
call(types.SimpleNamespace(f=lambda x: x))
---
for git in [types.SimpleNamespace(f=lambda: 1)]:
    git.f()
---
try:
    1 / 0
except ZeroDivisionError as git:
    git.with_traceback(None)
---
f = git.f
f = print
f("not the library")
---
from tools.git import f
def f(x):
    return x
f(1)
"""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("text", scripts(RIGHT))
def test_right_script_is_not_changed(text: str) -> None:
    run_unchanged(text)
