"""Arguments beyond their limit are refused before they are read, the limit is named, and the script may go on."""

import pytest

from manifests.grants import Limits
from tests.sandbox_runtime.running import EchoPort
from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, exceeds
from tests.security.hostile import MOST_SECONDS, RAW_HOST, watched
from tests.security.test_forged_batches import SlowPort

pytestmark = pytest.mark.anyio

LIMIT = exceeds("argument_bytes", 1000)
ONE, IT = "await git.git_log(a=1)", {"a": 1}


def bomb(name: str, arguments: str, fate: Fate = LIMIT) -> Attack:
    return Attack(name, f"await git.git_log({arguments})", fate, ONE, IT)


REFUSED = Fate(value=True, limits={"argument_bytes": 1000})

ATTACKS = [
    bomb("long_text", "a='x' * 1000"),
    bomb("very_long_text", "a='x' * 10 ** 7"),
    bomb("text_of_two_bytes", "a='é' * 500"),
    bomb("text_that_is_longer_escaped", "a='\\0' * 200"),
    bomb("long_name", "**{'x' * 1000: 1}"),
    bomb("many_names", "**{f'x{i}': i for i in range(200)}"),
    bomb("many_lists", "a=[[]] * 300"),
    bomb("long_integer", "a=10 ** 2000"),
    bomb("shared_lists", "a=[[[[1] * 9] * 9] * 9] * 9"),
    bomb("not_a_number", "a=float('nan')", Fate("script_error")),
    Attack(
        "size_that_is_claimed",
        "'argument_limit' in host.exchange('1 a.b !' + '9' * 19, 2000)",
        REFUSED,
        ONE,
        IT,
        RAW_HOST,
    ),
    Attack(
        "raw_text",
        "'argument_limit' in host.exchange('1 a.b ' + 'x' * 2000, 2000)",
        REFUSED,
        ONE,
        IT,
        RAW_HOST,
    ),
    Attack("raw_flood", "host.exchange('1 a.b ' + 'x' * 10 ** 8, 2000)", LIMIT, ONE, IT, RAW_HOST),
    Attack(
        "raw_lines",
        "host.exchange('\\n'.join(f'{i} a.b ' + 'x' * 900 for i in range(1, 9000)), 2000)",
        LIMIT,
        ONE,
        IT,
        RAW_HOST,
    ),
    Attack(
        "raw_depth",
        "'argument_limit' in host.exchange('1 a.b {\"a\":' + '[' * 400 + ']' * 400 + '}', 2000)",
        REFUSED,
        ONE,
        IT,
        RAW_HOST,
    ),
    Attack(
        "raw_values",
        "'argument_limit' in host.exchange('1 a.b {\"a\":[' + '1,' * 400 + '1]}', 2000)",
        REFUSED,
        ONE,
        IT,
        RAW_HOST,
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_arguments_beyond_their_limit_are_refused(arena: Arena, attack: Attack) -> None:
    async with watched() as delay:
        await arena.withstands(attack)
    assert delay.seconds < MOST_SECONDS


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_arguments_within_their_limit_arrive(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)


async def test_calls_together_hold_no_more_than_thirty_two_of_the_longest(arena: Arena) -> None:
    """200 waiting calls of a mebibyte each would be 200 MiB of text, and a gigabyte once it is read."""
    port, script = (
        SlowPort(),
        (
            "calls = [asyncio.ensure_future(git.hangs(a='x' * 900)) for _ in range(60)]\n"
            "done, _ = await asyncio.wait(calls, return_when='FIRST_COMPLETED')\n"
            "await asyncio.sleep(0.05)\n"
            "refused = [call.exception() for call in calls if call.done()]\n"
            "len(refused), {error.code for error in refused}.pop(), 'argument_bytes' in str(refused[0])"
        ),
    )
    result = await arena.run(script, Limits(argument_bytes=1000, parallel_calls=10), port)
    assert (result.error, result.value, port.most) == (None, [25, "argument_limit", True], 10)


async def test_what_was_held_is_let_go_with_the_call(arena: Arena) -> None:
    port = EchoPort()
    script = """
for _ in range(100):
    await git.git_log(a='x' * 900)
for _ in range(40):
    call = asyncio.ensure_future(git.hangs(a='x' * 900))
    await asyncio.sleep(0.001)
    call.cancel()
len((await git.git_log(a='x' * 900))['a'])
"""
    result = await arena.run(script, Limits(argument_bytes=1000, parallel_calls=10), port)
    assert (result.error, result.value) == (None, 900)
    assert len(port.calls) > 100
