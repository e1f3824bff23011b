"""A flood of output ends nothing: what fits is kept, in order and whole characters, and the rest is counted."""

import pytest

from manifests.grants import Limits
from tests.security.arena import Arena
from tests.security.attack import REACHED, Attack, Fate, exceeds, yields
from tests.security.hostile import MOST_SECONDS, RAW_HOST, watched

pytestmark = pytest.mark.anyio

MOST = 1000


def flood(name: str, attack: str, fate: Fate | None = None, setup: str = "") -> Attack:
    fate = fate or exceeds("cpu_seconds", 0.2, stdout_bytes=MOST)
    return Attack(name, attack, fate, "print('a line')\n7", 7, setup)


def gulp(name: str, attack: str, setup: str = "") -> Attack:
    return flood(name, attack + "\n7", Fate(value=7, limits={"stdout_bytes": MOST}), setup)


ATTACKS = [
    flood("lines", "while True: print('x' * 99)"),
    flood("characters", "while True: print('x', end='')"),
    flood("flushed", "while True: print('x', flush=True)"),
    flood("stderr", "while True: print('x' * 99, file=sys.stderr)", setup="import sys"),
    flood("first_stream", "while True: sys.__stdout__.write('x' * 99)", setup="import sys"),
    flood("bytes", "while True: sys.stdout.buffer.write(b'x' * 99)", setup="import sys"),
    flood("lines_at_once", "while True: sys.stdout.writelines(['x\\n'] * 99)", setup="import sys"),
    flood(
        "warnings",
        "while True: warnings.warn('x' * 99)",
        setup="import warnings\nwarnings.simplefilter('always')",
    ),
    flood("log", "while True: logging.error('x' * 99)", setup="import logging"),
    flood(
        "tracebacks",
        "while True:\n    try: 1 / 0\n    except ZeroDivisionError: traceback.print_exc()",
        setup="import traceback",
    ),
    flood("raw_host", "while True: host.print('x' * 99)", setup=RAW_HOST),
    flood("raw_host_one_by_one", "while True: host.print('x')", setup=RAW_HOST),
    flood("descriptor", "while True: os.write(1, b'x' * 99)", setup="import os"),
    gulp("one_long_line", "print('x' * 10 ** 7)"),
    gulp("one_long_text", "sys.stdout.write('é' * 10 ** 6)", "import sys"),
    gulp("raw_gulp", "host.print('x' * 80_000_000)", RAW_HOST),
    gulp("many_lines", "print('x\\n' * 10 ** 6)"),
    gulp("nul", "print('\\0' * 10 ** 6)"),
    gulp("escapes", "print('\\x1b[2J\\x07' * 10 ** 5)"),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_flood_of_output_is_cut_and_counted(arena: Arena, attack: Attack) -> None:
    async with watched() as delay:
        result = await arena.withstands(attack)
    assert delay.seconds < MOST_SECONDS
    assert len(result.stdout.encode()) <= MOST
    assert result.stdout.startswith(REACHED)
    if attack.name != "descriptor":  # which leads nowhere
        assert result.stdout_bytes_dropped > 0


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_a_line_is_printed(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)


@pytest.mark.parametrize("character", ["é", "€", "😀"])
@pytest.mark.parametrize("most", [0, 1, 5, 10])
async def test_output_is_cut_between_characters(arena: Arena, character: str, most: int) -> None:
    result = await arena.run(f"print({character!r} * 9)", Limits(stdout_bytes=most))
    size = len(character.encode())
    assert result.stdout == character * (most // size)
    assert result.stdout_bytes_dropped == 9 * size + 1 - most // size * size


async def test_all_that_fits_is_kept(arena: Arena) -> None:
    result = await arena.run("print('x' * 999)", Limits(stdout_bytes=1000))
    assert (len(result.stdout), result.stdout_bytes_dropped) == (1000, 0)


async def test_printing_nothing_reaches_nothing(arena: Arena) -> None:
    assert (await arena.run(RAW_HOST + "host.print('')")).stdout == ""
    await arena.withstands(Attack("", "print('', end='')", yields(None), "1", 1))
