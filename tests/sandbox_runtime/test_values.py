"""The JSON of a script's value."""

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.running import EchoPort, Runner


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("import sys\ndel sys.stdout, sys.stderr\n5", 5),
        ("x = 0\nfor n in (1, 2):\n    if n:\n        x += n", 3),
        ("try:\n    x = 1\nexcept ToolError:\n    print('down')", 1),
        ("for n in (1, 2):\n    print(n)\n    x = n", None),
        ("if 1 == 2:\n    x = 1\nelse:\n    x = 2", 2),
        ("import contextlib\nwith contextlib.nullcontext():\n    x = 3", 3),
        ("while True:\n    if 1:\n        break\n    x = 1", None),
        ("if 1:\n    x = 1\nelse:\n    y = 2", None),
        ("(1, [2.5, None, True], {'a': ()})", [1, [2.5, None, True], {"a": []}]),
        ("{1: 'one', None: 0, True: 1, 2.5: 2}", {"1": 1, "null": 0, "2.5": 2}),
        ("{'a': {('CHF', 2026): 1, ('CHF', None): 2}}", {"a": {"('CHF', 2026)": 1, "('CHF', None)": 2}}),
        (
            "import json\njson.JSONEncoder.default = lambda self, other: repr(other)\n[print]",
            ["<built-in function print>"],
        ),
        ("'é 😀 \\u2028 \\x00'", "é 😀 \u2028 \x00"),
        ("import enum\nclass Colour(enum.IntEnum):\n    RED = 1\nColour.RED", 1),
        ("import collections\ncollections.Counter('aab')", {"a": 2, "b": 1}),
        ("d = {'z': 1, 'a': 2}\n[d.keys(), d.items(), {*d}]", [["z", "a"], [["z", 1], ["a", 2]], ["a", "z"]]),
    ],
)
async def test_json_values_come_back_whole(run: Runner, script: str, value: Json) -> None:
    assert await run.value(script) == value


@pytest.mark.parametrize(
    ("script", "value", "told"),
    [
        ("{'rows': [1.5, float('nan'), float('-inf')]}", {"rows": [1.5, None, None]}, "result['rows'][1], "),
        (
            "{'n': [1, -10**4300], 10**5000: 1}",
            {"n": [1, "-1" + "0" * 4300], "1" + "0" * 5000: 1},
            "result['n'][1]",
        ),
        ("{'k': 'a\\ud800'}", {"k": "a\ufffd"}, "result: "),
        ("print('b\\udfff')", None, "stdout: "),
    ],
)
async def test_what_json_lacks_is_replaced_and_told(run: Runner, script: str, value: Json, told: str) -> None:
    result = await run(script)
    assert result.value == value
    assert any(told in notice for notice in result.notices)


async def test_what_changes_in_an_emitted_block_is_told(run: Runner) -> None:
    block = "{'type': 'text', 'text': 'a\\ud800', 'score': float('nan')}"
    result = await run(f"portal.emit({block})\nportal.emit({block})")
    assert result.emitted == ({"type": "text", "text": "a\ufffd", "score": None},) * 2
    assert len(result.notices) == 2


async def test_a_value_may_emit_blocks_while_it_is_read(run: Runner) -> None:
    emitting = "class Rows(dict):\n    def items(self):\n        portal.emit({'type': 'text', 'text': 'a', 'at': AT})"
    for at in ("{1: 2}", "{3}"):
        value = f"{emitting.replace('AT', at)}\n        return [('b', 1)]\n[[Rows(a=1)], Rows(a=1)]"
        assert await run.value(value) == [[{"b": 1}], {"b": 1}]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("{3j: 4}", "a key of result is a complex"),
        ("{'rows': [0, {'part': 1j}]}", "result['rows'][1]['part'] is a complex"),
        ("a = []\na.append(a)\na", "contains itself"),
        ("a = 1\nfor _ in range(300):\n    a = [a]\na", "nested more than 200 levels"),
        ("import git\nlambda: git.git_log()\n[[f() for f in [lambda: git.git_log()]][0]]", "was not awaited"),
    ],
)
async def test_value_that_is_no_json_is_named_with_its_place(run: Runner, script: str, told: str) -> None:
    error = await run.error(script)
    assert error.code == "result_not_json"
    assert told in error.message


@pytest.mark.parametrize(
    ("script", "value", "notices"),
    [
        ("x: int = 1", 1, 1),
        ("x = 1\nx += 1", 2, 1),
        ("if __name__ == '__main__':\n    x = y = 3", 3, 1),
        ("if __name__ == '__main__':\n    4", 4, 0),
        ("if False:\n    return 1\nx = 2", 2, 1),
        ("x = {}\nx['a'] = 1", None, 1),
        ("a, b = 1, 2", None, 1),
        ("x = object()", None, 1),
        ("for n in (1, 2):\n    await git.git_log()", None, 1),
        ("found = {}\nwith asyncio.Runner():\n    found[1] = 2", None, 1),
        ("if 0:\n    x = 1", None, 1),
        ("m = map(int, ['1', 'x'])", None, 1),
        ("import sys\nif True:\n    sys.exit()\nx = 1", None, 0),
        ("for n in (1, 2):\n    print(n)", None, 0),
        ("for n in (1, 2):\n    portal.emit({'type': 'text', 'text': 'a'})", None, 0),
        ("x = 5\nif x:\n    return", None, 0),
        ("await git.git_log()\nimport json", None, 0),
    ],
)
async def test_script_has_the_value_of_its_last_assignment_or_is_told_that_it_shows_nothing(
    run: Runner, script: str, value: Json, notices: int
) -> None:
    result = await run(script)
    assert (result.error, result.value, len(result.notices)) == (None, value, notices)


async def test_argument_beyond_what_json_readers_take_is_refused_and_not_sent(run: Runner) -> None:
    port = EchoPort()
    script = (
        "try:\n    await git.git_log(count=10**4300)\nexcept TypeError as error:\n    print(error)\n"
        "(await git.git_log(count=10**4299))['count'] == 10**4299"
    )
    result = await run(script, port=port)
    assert (result.value, len(port.calls)) == (True, 1)
    assert "argument count" in result.stdout and "4,300 digits" in result.stdout
