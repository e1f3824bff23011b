"""The objects and frames of the interpreter lie open to the script: whatever it does to them, the host counts again."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, exceeds, loses_worker, raises, yields
from tests.security.hostile import OWN_FRAMES

pytestmark = pytest.mark.anyio

LOOP_AT_THE_END = """
def late(frame, event, _):
    if event == "return" and frame.f_code.co_name == "_value":
        while True: pass
sys.setprofile(late)
"""
CALL_AT_THE_END = """
import types
late = types.SimpleNamespace(flush=lambda: interpreter_itself()._calls.cross(0), notices=list)
interpreter_itself()._output = late
7
"""


def meddling(name: str, attack: str, fate: Fate) -> Attack:
    return Attack(name, attack, fate, "await git.git_log(count=1)", {"count": 1}, OWN_FRAMES)


ATTACKS = [
    meddling(
        "find_all_objects",
        "len([o for o in gc.get_objects() if 'wasmtime' in type(o).__module__])",
        yields(0),
    ),
    meddling("referrers", "any('secret' in str(o)[:100] for o in gc.get_referrers(gc)[:9])", yields(False)),
    meddling("leave_the_last_frame", "frame('execute').f_back.f_back is None", yields(True)),
    meddling(
        "count_calls_anew",
        "calls = interpreter_itself()._calls\nawait git.git_log()\ncalls._last = 0\nawait git.git_log()",
        loses_worker(),
    ),
    meddling(
        "allow_long_arguments",
        "interpreter_itself()._calls.argument_bytes = 10**9\nawait git.git_log(a='x' * 2000)",
        exceeds("argument_bytes", 1000),
    ),
    meddling(
        "allow_very_long_arguments",
        "interpreter_itself()._calls.argument_bytes = 10**9\nawait git.git_log(a='x' * 5_000_000)",
        exceeds("argument_bytes", 1000),
    ),
    meddling(
        "allow_long_results",
        "vars(interpreter_itself()._portal)['__left'] = 10**9\n'x' * 2000",
        exceeds("result_bytes", 1000),
    ),
    meddling(
        "allow_long_blocks",
        "vars(portal)['__left'] = 10**9\nportal.emit({'type': 'text', 'text': 'x' * 2000})",
        exceeds("result_bytes", 1000),
    ),
    meddling("claim_a_limit", "vars(portal)['__left'] = 0\n1", exceeds("result_bytes", 1000)),
    meddling(
        "forge_the_error",
        "frame('execute').f_locals['header']['error'] = {'code': 'worker_lost', 'message': 'm'}",
        raises("m"),
    ),
    meddling(
        "forge_a_refusal",
        "frame('execute').f_locals['header']['error'] = {'code': 'not_granted'}",
        raises("the script failed"),
    ),
    meddling(
        "forge_the_value",
        "import json\ndumps = json.dumps\njson.dumps = lambda *a, **k: '{}\\n7\\n' + dumps(*a, **k)",
        Fate("result_not_json"),
    ),
    meddling(
        "forge_the_header",
        "import json\njson.dumps = lambda *a, **k: '[]'",
        raises("SystemError: the script broke the interpreter"),
    ),
    meddling(
        "header_of_nothing",
        "import json\njson.dumps = lambda *a, **k: ''",
        raises("SystemError: the script broke the interpreter"),
    ),
    meddling("no_header_at_all", "import json\njson.dumps = None", Fate("script_error")),
    meddling("clear_the_frame", "frame('execute').clear()", raises("RuntimeError")),
    meddling("jump_in_the_frame", "frame('execute').f_lineno = 1", raises("ValueError")),
    meddling(
        "other_code_for_the_frame",
        "type(interpreter_itself()).execute.__code__ = (lambda self, settings: 'x').__code__\n7",
        yields(7),
    ),
    meddling(
        "go_on_after_the_end",
        LOOP_AT_THE_END,
        exceeds("cpu_seconds", 0.1),
    ),
    meddling(
        "call_after_the_end",
        CALL_AT_THE_END,
        yields(7),
    ),
    meddling("hook_of_the_end", "import atexit\natexit.register(lambda: 1 / 0)\n7", yields(7)),
    meddling(
        "finalizer_at_the_end", "class Late:\n    def __del__(self): sys.exit(9)\nkept = Late()\n7", yields(7)
    ),
    meddling(
        "hook_of_exceptions", "sys.excepthook = lambda *_: sys.exit(0)\n1 / 0", raises("ZeroDivisionError")
    ),
    meddling("hook_of_audits", "sys.addaudithook(lambda *_: 1 / 0)\n7", Fate("script_error")),
    meddling(
        "no_garbage_collection",
        "gc.disable()\nwhile True:\n    a = []\n    a.append([a] * 1000)",
        exceeds("memory_mib", 64),
    ),
    meddling("unfreeze", "gc.unfreeze()\ngc.collect() >= 0", yields(True)),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_meddling_with_the_interpreter_changes_no_fact(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS[:1], ids=str)
async def test_looking_at_the_interpreter_is_harmless(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)
