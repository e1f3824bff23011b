"""Values of another type than the interface names, in both directions: they end the instance, or an exception tells."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import REACHED, Attack, Fate, breaks, raises, yields
from tests.security.hostile import INTERPRETER, RAW_HOST

pytestmark = pytest.mark.anyio


def sent(name: str, attack: str, fate: Fate | None = None) -> Attack:
    return Attack(name, attack, fate or breaks(), "host.exchange('', 0)", "", RAW_HOST)


ATTACKS = [
    sent("number_for_text", "host.exchange(1, 0)"),
    sent("none_for_text", "host.print(None)"),
    sent("bytes_for_text", "host.print(b'x')"),
    sent("dict_for_text", "host.emit({})"),
    sent("text_for_number", "host.exchange('', 'x')"),
    sent("none_for_number", "host.exchange('', None)"),
    sent("fraction_for_number", "host.exchange('', 1.5)"),
    sent("number_too_large", "host.exchange('', 2**63)"),
    sent("number_too_small", "host.exchange('', -2**63 - 1)"),
    sent("number_of_a_thousand_digits", "host.exchange('', 10**1000)"),
    sent("true_for_number", "host.exchange('', True)", yields("")),
    sent(
        "class_like_text",
        "class Text(str):\n    def __str__(self): raise SystemExit\nhost.print(Text('x'))",
        yields(None),
    ),
    sent(
        "class_like_number",
        "class Number(int):\n    def __index__(self): raise SystemExit\nhost.exchange('', Number(0))",
        yields(""),
    ),
    sent(
        "object_with_index",
        "class Number:\n    def __index__(self): return 0\nhost.exchange('', Number())",
        yields(""),
    ),
    sent("too_few", "host.exchange('')", raises("TypeError")),
    sent("too_many", "host.exchange('', 0, 0)", raises("TypeError")),
    sent("lone_surrogate", "host.print('\\ud800')"),
    sent("lone_surrogate_in_a_call", 'host.exchange(\'1 a.b {"a": "\\udfff"}\', 0)'),
    sent(
        "module_replaced",
        "import sys\nsys.modules['componentize_py_runtime'].call_import = None\nhost.print('x')",
        raises("TypeError"),
    ),
]


# What the interpreter of a session answers in its next run, and what becomes of that.
ANSWERS = {
    "None": breaks(),
    "5": breaks(),
    "b'x'": breaks(),
    "['x']": breaks(),
    "object()": breaks(),
    "'\\ud800'": breaks(),
    "1 / 0": breaks(),
    "sys.exit(0)": breaks(),
    "host.exchange": breaks(),
    "'x' * 60_000_000": Fate("result_limit"),
    "''": Fate("script_error"),
    "'{}'": Fate("result_not_json"),
    "'{}\\nnull'": yields(None),
}
FORGERY = INTERPRETER + RAW_HOST + "def answer(self, settings):\n    host.print({!r})\n    return {}\n"


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_value_of_another_type_does_not_cross(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_value_of_the_right_type_crosses(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)


@pytest.mark.parametrize("answer", ANSWERS)
async def test_answer_of_another_type_does_not_cross(arena: Arena, answer: str) -> None:
    session = await arena.sandbox.open_session()
    try:
        await arena.run(FORGERY.format(REACHED, answer) + "interpreter().execute = answer", session=session)
        await arena.meets(ANSWERS[answer], "1", session=session)
    finally:
        session.close()


async def test_answer_of_an_interpreter_that_was_only_looked_at_crosses(arena: Arena) -> None:
    session = await arena.sandbox.open_session()
    await arena.run(FORGERY.format(REACHED, "''"), session=session)
    assert (await arena.run("1", session=session)).value == 1
    session.close()
