"""A result beyond its limit is refused whole, the limit is named, and what was printed and called before is kept."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, exceeds, raises, yields
from tests.security.hostile import MOST_SECONDS, OWN_FRAMES, RAW_HOST, watched

pytestmark = pytest.mark.anyio

LIMIT = exceeds("result_bytes", 10_000)


def bomb(
    name: str,
    attack: str,
    fate: Fate = LIMIT,
    twin: str = "['x', 1]",
    value: object = ["x", 1],
    setup: str = "",
) -> Attack:
    return Attack(name, attack, fate, twin, value, setup)


ATTACKS = [
    bomb("long_text", "'x' * 10 ** 4"),
    bomb("very_long_text", "'x' * 10 ** 8"),
    bomb("long_text_of_two_bytes", "'é' * 5000"),
    bomb("text_that_is_longer_escaped", "'\\0' * 2000"),
    bomb("long_key", "{'x' * 10 ** 4: 1}"),
    bomb("many_keys", "{str(i): i for i in range(2000)}"),
    bomb("many_lists", "[[]] * 2000"),
    bomb("many_objects", "[{'a': []}] * 800"),
    bomb("many_numbers", "[1] * 4000"),
    bomb("many_texts", "[''] * 3000"),
    bomb(
        "shared_lists",
        "shared = [1]\nfor _ in range(20): shared = [shared] * 9\nshared",
        exceeds("memory_mib", 40),
    ),
    bomb("contains_itself", "a = []\na.append(a)\na", Fate("result_not_json", "result[0] contains itself")),
    bomb("deep", "deep = []\nfor _ in range(300): deep = [deep]\ndeep", Fate("result_not_json")),
    bomb("long_integer", "10 ** 20_000"),
    bomb("not_a_number", "float('nan')", yields(None)),
    bomb("returned", "return 'x' * 10 ** 4"),
    bomb(
        "emitted",
        "portal.emit({'type': 'text', 'text': 'x' * 10 ** 4})",
        twin="portal.emit({'type': 'text', 'text': 'x'})",
        value=None,
    ),
    bomb("emitted_piece_by_piece", "while True: portal.emit({'type': 'text', 'text': 'x' * 99})"),
    bomb("emitted_and_returned", "portal.emit({'type': 'text', 'text': 'x' * 6000})\n'x' * 6000"),
    bomb("raw_block", "host.emit('x' * 10 ** 8)", setup=RAW_HOST),
    bomb("raw_blocks", 'while True: host.emit(\'{"type": "text"}\')', setup=RAW_HOST),
    bomb("text_of_an_error", "raise ValueError('x' * 10 ** 7)", raises("ValueError: xxx")),
    bomb(
        "notes_of_an_error",
        "error = ValueError('x')\nfor _ in range(10 ** 5): error.add_note('y' * 99)\nraise error",
        raises("ValueError: x"),
    ),
    bomb("name_of_an_error", "raise type('x' * 10 ** 6, (Exception,), {})", raises("xxx")),
    bomb(
        "leaves_of_an_error",
        "raise ExceptionGroup('g', [ValueError('x' * 9999)] * 999)",
        raises("ExceptionGroup: g"),
    ),
    bomb("status_of_the_exit", "sys.exit('x' * 10 ** 7)", Fate("script_exit", "xxx"), setup="import sys"),
    bomb("number_of_the_exit", "sys.exit(10 ** 4000)", Fate("script_exit"), setup="import sys"),
    bomb("notices", "for _ in range(999): forgotten()\n1", yields(1), setup="def forgotten(): git.git_log()"),
    bomb(
        "forged_notices",
        "frame('execute').f_locals['notices'] = ('n' * 99,) * 99_999\n1",
        yields(1),
        setup=OWN_FRAMES,
    ),
    bomb("forged_answer", "import json\njson.dumps = lambda *_, **__: 'x' * 10 ** 8", setup=OWN_FRAMES),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_result_beyond_its_limit_is_refused(arena: Arena, attack: Attack) -> None:
    async with watched() as delay:
        result = await arena.withstands(attack)
    assert delay.seconds < MOST_SECONDS
    assert len(result.notices) <= 110
    told = [result.error.message, result.error.traceback, result.error.hint] if result.error else []
    assert sum(map(len, [*told, *result.notices])) < 1_000_000


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_result_within_its_limit_comes_out(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)


async def test_blocks_beyond_a_thousand_are_left_out_and_told(arena: Arena) -> None:
    for count, kept in ((999, 999), (1000, 1000), (5000, 1000)):
        result = await arena.run(RAW_HOST + f'for _ in range({count}): host.emit(\'{{"type": "text"}}\')\n7')
        assert (result.value, len(result.emitted), len(result.notices)) == (7, kept, count > kept)


async def test_blocks_are_kept_when_the_run_fails(arena: Arena) -> None:
    result = await arena.run("portal.emit({'type': 'text', 'text': 'x'})\nimport os\nos.abort()")
    assert result.emitted == ({"type": "text", "text": "x"},)
