"""Past all that the guest checks: what the host's own functions do with whatever they are given."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, breaks, exceeds, loses_worker, raises, yields
from tests.security.hostile import RAW_HOST

pytestmark = pytest.mark.anyio

ECHO = "host.exchange('1 git.git_log {\"a\": 1}', 5000)"
ECHOED = '[[1,1,{"a":1}]]'


def raw(
    name: str, attack: str, fate: object, twin: str = ECHO, value: object = ECHOED, setup: str = ""
) -> Attack:
    return Attack(name, attack, fate, twin, value, RAW_HOST + setup)  # type: ignore[arg-type]


ATTACKS = [
    raw("no_arguments", "host.exchange('1 git.git_log', 1000)", loses_worker()),
    raw("arguments_that_are_a_list", "host.exchange('1 git.git_log [1]', 1000)", loses_worker()),
    raw(
        "arguments_that_are_no_json",
        "'argument_error' in host.exchange('1 git.git_log nonsense', 1000)",
        yields(True),
    ),
    raw(
        "arguments_of_a_thousand_levels",
        "'argument_error' in host.exchange('1 a.b {\"a\":' + '[' * 999 + ']' * 999 + '}', 1000)",
        yields(True),
    ),
    raw(
        "arguments_of_nan", "host.exchange('1 git.git_log {\"a\": NaN}', 1000)", yields('[[1,1,{"a":null}]]')
    ),
    raw(
        "arguments_of_infinity",
        "host.exchange('1 git.git_log {\"a\": 1e999}', 1000)",
        yields('[[1,1,{"a":null}]]'),
    ),
    raw(
        "arguments_twice_the_same_key",
        'host.exchange(\'1 git.git_log {"a": 0, "a": 1}\', 1000)',
        yields(ECHOED),
    ),
    raw(
        "arguments_with_nul",
        "host.exchange('1 git.git_log {\"a\": \"\\0\"}', 1000).count('argument_error')",
        yields(1),
    ),
    raw("call_without_number", "host.exchange('git.git_log {}', 1000)", loses_worker()),
    raw("negative_number", "host.exchange('-1 git.git_log {}', 1000)", loses_worker()),
    raw("huge_number", "host.exchange('9' * 4000 + ' git.git_log {}', 1000)", loses_worker()),
    raw("number_of_another_script", "host.exchange('²  git.git_log {}', 1000)", loses_worker()),
    raw("number_zero", "host.exchange('0 git.git_log {}', 1000)", loses_worker()),
    raw("number_twice", "host.exchange('1 a.b {}\\n1 a.b {}', 1000)", loses_worker()),
    raw("falling_numbers", "host.exchange('2 a.b {}\\n1 a.b {}', 1000)", loses_worker()),
    raw("number_with_a_sign", "host.exchange('+1 a.b {}', 1000)", loses_worker()),
    raw("empty_lines", "host.exchange('\\n\\n', 1000)", loses_worker()),
    raw("carriage_returns", "host.exchange('1 a.b {}\\r\\n2 a.b {}\\r', 1000).count('a')", yields(0)),
    raw("only_nul", "host.exchange('\\0', 1000)", loses_worker()),
    raw("longest_name", "host.exchange('1 ' + 'a' * 513 + ' {}', 1000)", loses_worker()),
    raw("name_of_nothing", "host.exchange('1  {}', 5000)", yields("[[1,1,{}]]")),
    raw("cancel_what_never_was", "host.exchange('7', 1000)", loses_worker()),
    raw("cancel_twice", "host.exchange('1 git.hangs {}', 0)\nhost.exchange('1\\n1', 0)", loses_worker()),
    raw("claim_a_size", "'argument_limit' in host.exchange('1 a.b !5', 1000)", yields(True)),
    raw(
        "claim_an_absurd_size", "'argument_limit' in host.exchange('1 a.b !' + '9' * 20, 1000)", yields(True)
    ),
    raw("claim_no_size", "'argument_limit' in host.exchange('1 a.b !x', 1000)", yields(True)),
    raw("block_that_is_no_json", "host.emit('{')", yields(None)),
    raw("block_that_is_no_object", "host.emit('[1]')", yields(None)),
    raw("block_of_no_type", "host.emit('{\"type\": 1}')", yields(None)),
    raw("block_of_nothing", "host.emit('')", yields(None)),
    raw("print_nothing", "host.print('')", yields(None)),
    raw("print_nul_and_escapes", "host.print('\\0\\x1b[2J')", yields(None)),
    raw("wait_less_than_nothing", "host.exchange('', -2**63)", exceeds("wall_seconds", 0.3)),
    raw("wait_longer_than_time", "host.exchange('', 2**63 - 1)", exceeds("wall_seconds", 0.3)),
    raw("wait_for_a_call_that_was_never_made", "host.exchange('', -1)", exceeds("wall_seconds", 0.3)),
    raw(
        "import_by_number",
        "runtime.call_import(3, [])",
        breaks(),
        "host.exchange('', 0)",
        "",
        "import componentize_py_runtime as runtime\n",
    ),
    raw(
        "import_by_a_negative_number",
        "runtime.call_import(-1, [])",
        raises("OverflowError"),
        "host.exchange('', 0)",
        "",
        "import componentize_py_runtime as runtime\n",
    ),
    raw(
        "import_without_arguments",
        "runtime.call_import(0, [])",
        breaks(),
        "host.exchange('', 0)",
        "",
        "import componentize_py_runtime as runtime\n",
    ),
    raw(
        "drop_a_resource_that_is_none",
        "runtime.drop_resource(0, 1)",
        breaks(),
        "host.exchange('', 0)",
        "",
        "import componentize_py_runtime as runtime\n",
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_host_believes_nothing_of_it(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_host_answers_what_is_in_order(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)
