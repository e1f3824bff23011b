"""Messages of the worker channel as a stranger would forge them: random bytes, and lies that look right.

All chance comes from a `random.Random`, which hypothesis can steer and shrink, and a seed can repeat.
"""

import json
from collections.abc import Callable
from random import Random

from sandbox_runtime.frames import (
    COUNT,
    END_HEADER,
    HEADER,
    PAST_HEADER,
    RUN_HEADER,
    START_HEADER,
    TRAP_HEADER,
    ToPortal,
    ToWorker,
    frame,
)

_LENGTHS = (0, 1, 4, 5, 255, 256, 65_536, 1 << 20, 1 << 24, 1 << 30, 0x7FFFFFFF, 0xFFFFFFFF)
_NUMBERS = (0, 1, 2, 7, 99, 1 << 31, (1 << 53) - 1, 1 << 63, (1 << 64) - 1)
_CODES = (
    "script_error",
    "wall_limit",
    "memory_limit",
    "result_limit",
    "sandbox_busy",
    "made_up",
    "",
    "x" * 99,
)
_PIECES = (
    b"[" * 300,
    b"[" * 300 + b"]" * 300,
    b'{"a":' * 250 + b"1" + b"}" * 250,
    b"9" * 5000,
    b"-" + b"9" * 400 + b".5e999",
    b"NaN",
    b"[Infinity,-Infinity,1e999]",
    b'"\\ud800"',
    b'{"a":1,"a":2}',
    b'"\xff\xfe"',
    b"\x00",
    b"null",
    b"",
)


def to_portal(chance: Random) -> bytes:
    """What a worker that was taken over may send at once."""
    return _message(chance, _TO_PORTAL, range(12))


def to_worker(chance: Random) -> bytes:
    """The same in the other direction; nothing in it asks the guest to compute for long."""
    return _message(chance, _TO_WORKER, range(7))


def conversation(chance: Random, say: Callable[[Random], bytes], most: int) -> list[list[bytes]]:
    """At least one message and at most so many, each in the pieces in which a socket might deliver it."""
    return [_cut(chance, say(chance)) for _ in range(chance.randrange(1, most + 1))]


def _cut(chance: Random, stream: bytes) -> list[bytes]:
    if len(stream) < 2 or chance.random() < 0.5:
        return [stream]
    places = sorted(chance.randrange(1, len(stream)) for _ in range(chance.randrange(1, 4)))
    return [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]


def _message(chance: Random, known: list[Callable[[Random], bytes]], kinds: range) -> bytes:
    dice = chance.randrange(10)
    if dice == 0:
        return noise(chance, 64)
    if dice == 1:
        return frame(chance.choice(kinds), noise(chance, 64))
    if dice == 2:
        payload = noise(chance, 64)
        return HEADER.pack(chance.choice(_LENGTHS), chance.choice(kinds)) + payload
    honest = chance.choice(known)(chance)
    return _mutated(chance, honest) if dice == 3 else honest


def noise(chance: Random, most: int) -> bytes:
    return chance.randbytes(chance.randrange(most + 1))


def _mutated(chance: Random, message: bytes) -> bytes:
    place = chance.randrange(len(message) + 1)
    how = chance.randrange(4)
    if how == 0:
        return message[:place]
    if how == 1:
        return message[:place] + noise(chance, 8) + message[place:]
    if how == 2:
        return message[:place] + noise(chance, 8) + message[place + chance.randrange(9) :]
    return message + message[place:]


def value(chance: Random, depth: int = 0) -> object:
    """Anything that JSON can say, and some that it cannot."""
    dice = chance.randrange(9 if depth < 4 else 6)
    if dice == 0:
        return None
    if dice == 1:
        return chance.random() < 0.5
    if dice == 2:
        return chance.choice(_NUMBERS) * chance.choice((-1, 1))
    if dice == 3:
        return chance.choice((0.5, -1e308, float("nan"), float("inf")))
    if dice in (4, 5):
        return chance.choice(("", "a", "é\u2028", "\ud800", "x" * 300, *_CODES))
    if dice == 6:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    words = (
        "source",
        "names",
        "uses",
        "notices",
        "error",
        "code",
        "message",
        "line",
        "hint",
        "bytes",
        "type",
    )
    return {chance.choice(words): value(chance, depth + 1) for _ in range(chance.randrange(6))}


def text(chance: Random) -> bytes:
    """JSON, or what only begins like it."""
    if chance.random() < 0.2:
        return chance.choice(_PIECES)
    return json.dumps(value(chance), ensure_ascii=chance.random() < 0.9).encode("utf-8", "surrogatepass")


def _end(chance: Random) -> bytes:
    milliseconds = chance.choice((0.0, 1.5, -1.0, 1e308, float("nan"), float("inf")))
    return END_HEADER.pack(milliseconds, chance.choice(_NUMBERS))


def _calls(chance: Random) -> bytes:
    """Lines that mostly keep the rule that numbers rise, so that many of them are taken."""
    number = chance.choice((0, 1, 1, 2, 5, 1000))
    lines = []
    for _ in range(chance.randrange(1, 6)):
        number += chance.choice((1, 1, 1, 2, 50, 0, -1))
        shown = (
            str(number).encode() if chance.random() < 0.95 else chance.choice((b"", b"x", b"-1", b"9" * 40))
        )
        function = chance.choice((b"a.b", b"a.hang", b"a.fail", b"", b"\xff\xfe", b"n" * 600, b"a.large"))
        arguments = chance.choice((b"{}", b'{"x":1}', b"!9", b"!" + b"9" * 30, b"!x", text(chance)))
        lines.append(shown if chance.random() < 0.2 else b" ".join((shown, function, arguments)))
    return frame(ToPortal.CALLS, chance.choice((b"\n", b"\n", b"\n\n")).join(lines))


def _trace(chance: Random) -> bytes:
    """Tokens of a trace, now and then with something else among them."""
    signs, numbers = ("", "+", "=", "@", "*"), ("0", "1", "7", "12", "999", "9999999999999", "01", "", "x")
    tokens = [chance.choice(signs) + chance.choice(numbers) for _ in range(chance.randrange(6))]
    return chance.choice((" ", " ", "  ", "\n")).join(tokens).encode()


_TO_PORTAL: list[Callable[[Random], bytes]] = [
    _calls,
    _calls,
    lambda chance: frame(ToPortal.OUTPUT, noise(chance, 40)),
    lambda chance: frame(ToPortal.DROPPED, COUNT.pack(chance.choice(_NUMBERS))),
    lambda chance: frame(ToPortal.BLOCK, text(chance)),
    lambda chance: frame(ToPortal.READY, COUNT.pack(chance.choice(_NUMBERS)) + noise(chance, 20)),
    lambda chance: frame(ToPortal.PREPARED, text(chance)),
    lambda chance: frame(ToPortal.FINISHED, _end(chance), text(chance), b"\n", text(chance)),
    lambda chance: frame(
        ToPortal.TRAPPED, _end(chance), TRAP_HEADER.pack(chance.randrange(256)), noise(chance, 30)
    ),
    lambda chance: frame(ToPortal.TRACE, _trace(chance)),
    lambda chance: frame(ToPortal.TRACE, b"3 +5"),
]


def _prepare(chance: Random) -> bytes:
    sizes = (0, 1, 100, 1 << 20, 64 << 20, (1 << 64) - 1)
    bounds = [chance.choice(sizes) for _ in range(4)]
    header = RUN_HEADER.pack(chance.choice((0.0, 0.01, 0.05, -1.0)), *bounds, chance.random() < 0.5)
    names, script = (
        noise(chance, 20),
        chance.choice((b"1", b"await a.b()", b"print(1)", b"x = (", noise(chance, 40))),
    )
    length = len(names) if chance.random() < 0.8 else chance.choice(_NUMBERS)
    clocks = chance.choice(_NUMBERS), chance.choice(_NUMBERS), chance.choice((0, 1, -1, 1 << 62))
    start = START_HEADER.pack(chance.randbytes(32), *clocks, chance.random() < 0.5)
    return frame(ToWorker.PREPARE, header, start, COUNT.pack(length), names, script)


def _past(chance: Random) -> bytes:
    line, answers = _trace(chance), text(chance)
    length = len(line) if chance.random() < 0.8 else chance.choice((0, 1, 0xFFFFFFFF))
    return frame(ToWorker.PAST, PAST_HEADER.pack(chance.random() < 0.5, length), line, answers)


_SETTINGS = b'{"library": {}, "argument_bytes": 1000, "result_bytes": 1000}'
_TO_WORKER: list[Callable[[Random], bytes]] = [
    _prepare,
    lambda chance: frame(ToWorker.EXECUTE, chance.choice((_SETTINGS, text(chance)))),
    *[lambda chance: frame(ToWorker.ANSWERS, text(chance))] * 4,
    lambda chance: frame(ToWorker.ANSWERS, b'[1,1,{"x":' + text(chance) + b"}]"),
    lambda chance: frame(ToWorker.RENEW, noise(chance, 3)),
    _past,
]
