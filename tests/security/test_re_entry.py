"""Entering the interpreter again from inside gains nothing: the same run, the same limits, the same ledger."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, breaks, exceeds, raises, yields
from tests.security.hostile import OWN_FRAMES, RAW_HOST

pytestmark = pytest.mark.anyio

SETTINGS = (
    """'{"library": {"secret": "\\\\nall "}, "argument_bytes": 1000000000, "result_bytes": 1000000000}'"""
)
AGAIN = (
    OWN_FRAMES
    + RAW_HOST
    + f"""
import builtins
def again(text, namespaces=""):
    entered = interpreter_itself()
    entered.prepare(text, namespaces)
    return entered.execute({SETTINGS})
def exports():
    return frame("execute").f_back.f_locals["self"]
class Number:
    def __init__(self, act): self.act = act
    def __index__(self): return self.act() or 0
"""
)


def entering(
    name: str, attack: str, fate: Fate, twin: str = "again('1 + 1').splitlines()[1]", value: object = "2"
) -> Attack:
    return Attack(name, attack, fate, twin, value, AGAIN)


ATTACKS = [
    entering("longer_result", "again('1 ' * 0 + '\"x\" * 2000')", exceeds("result_bytes", 1000)),
    entering(
        "longer_arguments",
        "'argument_limit' in again('await git.git_log(a=\"x\" * 2000)', 'git')",
        Fate(value=True, limits={"argument_bytes": 1000}),
    ),
    entering(
        "endlessly", "def deeper(): again('deeper()')\nbuiltins.deeper = deeper\ndeeper()", yields(None)
    ),
    entering("without_a_script", "interpreter_itself().execute('{}')", raises("AssertionError")),
    entering("wake_again", "exports().wake()\n7", yields(7)),
    entering(
        "same_randomness",
        "import random\nrandom.seed(1)\na = random.random()\nexports().wake()\nrandom.random() == a",
        yields(False),
    ),
    entering("call_within_a_call", "host.exchange('', Number(lambda: host.print('inner') or 0))", yields("")),
    entering(
        "calls_without_end_within_a_call",
        "def deeper(): return host.exchange('', Number(deeper))\ndeeper()",
        Fate("script_error"),
    ),
    entering("failure_within_a_call", "host.exchange('', Number(lambda: 1 / 0))", breaks()),
    entering("exit_within_a_call", "host.exchange('', Number(lambda: sys.exit(0)))", breaks()),
    entering(
        "flood_within_a_call",
        "host.exchange('1 a.b {}', Number(lambda: len(host.exchange('2 a.b {}', 0)) * 0))\nhost.exchange('', 1000)",
        Fate("worker_lost"),
    ),
    entering(
        "loop_within_the_loop",
        "asyncio.get_event_loop().run_until_complete(asyncio.sleep(0))\nawait asyncio.sleep(0)",
        Fate("script_error"),
    ),
    entering(
        "close_the_loop",
        "asyncio.get_running_loop().close()\nawait asyncio.sleep(0)",
        raises("RuntimeError"),
        "await asyncio.sleep(0, 3)",
        3,
    ),
    entering(
        "stop_the_loop",
        "asyncio.get_running_loop().stop()\nawait asyncio.sleep(0)",
        raises("RuntimeError"),
        "asyncio.get_running_loop().is_running() and await asyncio.sleep(0, 3)",
        3,
    ),
    Attack(
        "loop_of_ones_own",
        "asyncio.run(main())",
        yields(4),
        "await main()",
        4,
        "async def main(): return await asyncio.sleep(0, 4)",
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_entering_again_gains_nothing(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_entering_once_works(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)
