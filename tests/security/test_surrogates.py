"""Lone surrogates, which no encoding of text can carry, neither break the border nor come out of it."""

import json

import pytest

from sandbox_runtime.result import RunResult
from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, breaks, raises, yields
from tests.security.hostile import INTERPRETER, RAW_HOST

pytestmark = pytest.mark.anyio

REPLACED = "\ufffd"
TWIN, WHOLE = "'\\U0001F600'", "😀"


def carrying(name: str, attack: str, fate: Fate, setup: str = "") -> Attack:
    return Attack(name, attack, fate, TWIN, WHOLE, setup)


ATTACKS = [
    carrying("value", "'a\\udfffb'", yields(f"a{REPLACED}b")),
    carrying("key", "{'\\ud800': 1}", yields({REPLACED: 1})),
    carrying("key_and_its_replacement", "{'\\ud800': 1, '\\ufffd': 2}", yields({REPLACED: 2})),
    carrying("deep_inside", "[[{'a': ['\\udc00']}]]", yields([[{"a": [REPLACED]}]])),
    carrying("two_halves", "'\\ud83d\\ude00'", yields(REPLACED * 2)),
    carrying("halves_of_two_texts", "'\\ud83d' + '\\ude00'", yields(REPLACED * 2)),
    carrying("escape_that_is_text", "'\\\\ud800'", yields("\\ud800")),
    carrying("printed", "print('\\ud800')", yields(None)),
    carrying("printed_as_bytes", "sys.stdout.buffer.write(b'\\xed\\xa0\\x80')", yields(3), "import sys"),
    carrying("printed_to_stderr", "sys.stderr.write('\\ud800')", yields(1), "import sys"),
    carrying("printed_to_the_first_stream", "sys.__stdout__.write('\\ud800')", yields(1), "import sys"),
    carrying("argument", "await git.git_log(a='\\ud800')", yields({"a": REPLACED})),
    carrying("name_of_an_argument", "await git.git_log(**{'\\ud800': 1})", yields({REPLACED: 1})),
    carrying("name_of_a_function", "await getattr(files, '\\ud800')()", raises("AttributeError")),
    carrying("end_of_a_name", "await getattr(files, 'a\\ud800')()", raises("AttributeError")),
    carrying(
        "name_that_was_changed",
        "call = git.git_log()\ncall._function = 'git.\\ud800'\nawait call",
        Fate("script_error"),
    ),
    carrying(
        "name_of_a_namespace",
        "import importlib\nimportlib.import_module('tools.\\ud800')",
        raises("ModuleNotFoundError"),
    ),
    carrying("error", "raise ValueError('\\ud800')", raises(f"ValueError: {REPLACED}")),
    carrying(
        "error_of_a_tool", "raise ToolError('\\ud800', code='\\ud800', hint='\\ud800')", raises(REPLACED)
    ),
    carrying(
        "errors_in_a_group",
        "raise ExceptionGroup('\\ud800', [ValueError('\\ud801')])",
        raises(f"ExceptionGroup: {REPLACED}"),
    ),
    carrying(
        "note_of_an_error",
        "error = ValueError('x')\nerror.add_note('\\ud800')\nraise error",
        raises("ValueError: x"),
    ),
    carrying(
        "name_of_an_error",
        "raise type('A', (Exception,), {'__qualname__': '\\ud800'})('x')",
        Fate("script_error"),
    ),
    carrying("file_of_an_error", "exec(compile('1 / 0', '\\ud800', 'exec'))", Fate("script_error")),
    carrying("exit", "sys.exit('\\ud800')", Fate("script_exit", REPLACED), "import sys"),
    carrying("warning", "warnings.warn('\\ud800')", yields(None), "import warnings"),
    carrying("block", "portal.emit({'type': '\\ud800', '\\udc00': '\\ud800'})", yields(None)),
    carrying("source_of_code", "compile('\\ud800', 'x', 'exec')", raises("UnicodeEncodeError")),
    carrying("attribute", "getattr(1, '\\ud800')", raises("AttributeError")),
    carrying("raw_print", "host.print('\\ud800')", breaks(), RAW_HOST),
    carrying("raw_block", "host.emit('\\ud800')", breaks(), RAW_HOST),
    carrying("raw_call", 'host.exchange(\'1 a.b {"a": "\\ud800"}\', 0)', breaks(), RAW_HOST),
    carrying("raw_escaped_block", 'host.emit(\'{"type": "\\\\ud800"}\')', yields(None), RAW_HOST),
    carrying(
        "raw_escaped_argument",
        'host.exchange(\'1 a.b {"a": "\\\\udc00"}\', 1000)',
        yields('[[1,1,{"a":"�"}]]'),
        RAW_HOST,
    ),
    carrying(
        "raw_escaped_key",
        "host.exchange('1 a.b {\"\\\\uDBFF\": 1}', 1000)",
        yields('[[1,1,{"�":1}]]'),
        RAW_HOST,
    ),
    carrying(
        "raw_pair",
        'host.exchange(\'1 a.b {"a": "\\\\ud83d\\\\ude00"}\', 1000)',
        yields('[[1,1,{"a":"😀"}]]'),
        RAW_HOST,
    ),
    carrying(
        "forged_header",
        'import json\njson.dumps = lambda *_, **__: \'{"notices": ["\\\\ud800"]}\'',
        yields(None),
        INTERPRETER,
    ),
]


def assert_encodable(result: RunResult) -> None:
    error = result.error
    told = [error.message, error.hint, error.traceback, error.code] if error else [result.value]
    text = json.dumps([told, result.stdout, result.emitted, result.notices], ensure_ascii=False)
    assert text.encode()


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_lone_surrogate_does_not_come_out(arena: Arena, attack: Attack) -> None:
    assert_encodable(await arena.withstands(attack))


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_whole_character_comes_out(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)


@pytest.mark.parametrize("script", ["'\ud800'", "# \udfff\n1", "x\ud800 = 1"])
async def test_script_with_a_lone_surrogate_is_read(arena: Arena, script: str) -> None:
    result = await arena.run(script)
    assert_encodable(result)
    await arena.is_well()
