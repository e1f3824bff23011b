"""What a script's value becomes."""

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("1 + 1", 2),
        ("return 'early'\n1 / 0", "early"),
        ("x: int = 3", None),
        ("(1, [2.5, None, True], {'a': ()})", [1, [2.5, None, True], {"a": []}]),
        ("2**63, -(10**40)", [2**63, -(10**40)]),
        ("{1: 'one', None: 0, True: 1, 2.5: 2}", {"1": 1, "null": 0, "2.5": 2}),
        ("'é 😀 \\u2028 \\x00'", "é 😀 \u2028 \x00"),
        ("'a\\ud800b'", "a\ufffdb"),
        ("{'k\\udfff': 1}", {"k\ufffd": 1}),
        ("import enum\nclass Colour(enum.IntEnum):\n    RED = 1\nColour.RED", 1),
        ("import collections\ncollections.Counter('aab')", {"a": 2, "b": 1}),
    ],
)
async def test_json_values_come_back_whole(run: Runner, script: str, value: Json) -> None:
    assert await run.value(script) == value


async def test_numbers_that_json_lacks_become_null_and_are_told(run: Runner) -> None:
    result = await run("{'rows': [1.5, float('nan'), float('-inf')]}")
    assert result.value == {"rows": [1.5, None, None]}
    assert [notice.split(" ")[0] for notice in result.notices] == ["result['rows'][1]", "result['rows'][2]"]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            "import datetime\n{'rows': [0, {'when': datetime.date(2026, 1, 2)}]}",
            "result['rows'][1]['when'] is a date",
        ),
        ("{'tags': {1, 2}}", "result['tags'] is a set"),
        ("[b'raw']", "result[0] is a bytes"),
        ("{(1, 2): 3}", "a key of result is a tuple"),
        ("class Point: ...\nPoint()", "result is a Point"),
        ("import decimal\ndecimal.Decimal('1.5')", "result is a Decimal"),
        ("(x for x in [1])", "result is a generator"),
        ("a = []\na.append(a)\na", "contains itself"),
        ("a = 1\nfor _ in range(300):\n    a = [a]\na", "nested more than 200 levels"),
        ("10**5000", "more than 4,300 digits"),
        ("import git\nlambda: git.git_log()\n[[f() for f in [lambda: git.git_log()]][0]]", "was not awaited"),
    ],
)
async def test_value_that_is_no_json_is_named_with_its_place(run: Runner, script: str, told: str) -> None:
    result = await run(script)
    assert result.error is not None
    assert result.error.code == "result_not_json"
    assert told in result.error.message


async def test_forged_value_is_an_error_and_no_crash(run: Runner) -> None:
    forged = "import json\njson.JSONEncoder.encode = lambda *_: '{{{{'\njson.dumps = lambda *_, **__: '[' * 100000\n1"
    result = await run(forged)
    assert result.error is not None
    assert result.value is None


async def test_large_value_comes_back_whole(run: Runner) -> None:
    value = await run.value("[{'id': i, 'name': f'row {i}'} for i in range(50_000)]")
    assert len(value) == 50_000
    assert value[-1] == {"id": 49_999, "name": "row 49999"}
