"""Bytecode that no compiler writes owns the interpreter and all its memory, and nothing beyond."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, breaks, raises, ruins_itself
from tests.security.hostile import ALL_MEMORY

pytestmark = pytest.mark.anyio

CODE = """
import opcode
def crafted(*steps):
    def f(): return None
    code = bytes([opcode.opmap["RESUME"], 0])
    for name, argument in steps:
        code += bytes([opcode.opmap[name] if isinstance(name, str) else name, argument])
    f.__code__ = f.__code__.replace(co_code=code, co_stacksize=1)
    return f
END = ("RETURN_VALUE", 0)
"""
TWIN = "crafted(('LOAD_SMALL_INT', 7), END)()"


def crafted(name: str, steps: str, fate: Fate | None = None) -> Attack:
    return Attack(name, f"crafted({steps})()", fate or ruins_itself(), TWIN, 7, CODE)


def corrupting(name: str, attack: str, fate: Fate | None = None) -> Attack:
    """All of the linear memory is open to be read and written."""
    return Attack(
        name, f"memory = all_memory()\n{attack}", fate or ruins_itself(), "len(bytearray(3))", 3, ALL_MEMORY
    )


ATTACKS = [
    crafted("constant_far_away", "('EXTENDED_ARG', 127), ('EXTENDED_ARG', 255), ('LOAD_CONST', 0), END"),
    crafted("variable_far_away", "('LOAD_FAST', 200), END"),
    crafted(
        "store_far_away",
        "('LOAD_SMALL_INT', 1), ('EXTENDED_ARG', 255), ('EXTENDED_ARG', 255), ('STORE_FAST', 0), END",
    ),
    crafted("empty_stack", "*[('POP_TOP', 0)] * 2000, END"),
    crafted("full_stack", "*[('LOAD_SMALL_INT', 1)] * 100_000, END"),
    crafted("no_such_step", "(255, 0), END"),
    crafted("no_end", "('NOP', 0)"),
    crafted("jump_out", "('EXTENDED_ARG', 127), ('EXTENDED_ARG', 255), ('JUMP_FORWARD', 255), END"),
    crafted("jump_back_before_the_start", "('EXTENDED_ARG', 10), ('JUMP_BACKWARD', 255), ('CACHE', 0), END"),
    crafted("call_of_nothing", "('CALL', 200), *[('CACHE', 0)] * 3, END"),
    crafted("reserved_step", "('RESERVED', 0), END"),
    crafted("interpreter_exit", "('LOAD_SMALL_INT', 1), ('INTERPRETER_EXIT', 0)"),
    Attack(
        "forged_code_object",
        "type(f.__code__)(0, 0, 0, 2**31 - 1, 2**31 - 1, 0, b'', (), (), (), '', '', '', 0, b'', b'', (), ())",
        Fate("script_error"),
        "f()",
        1,
        "def f(): return 1",
    ),
    Attack(
        "stack_of_two_billion",
        "f.__code__ = f.__code__.replace(co_stacksize=2**29)\nf()",
        ruins_itself(),
        "f()",
        1,
        "def f(): return 1",
    ),
    Attack(
        "marshalled_garbage",
        "marshal.loads(b'c' + bytes(range(256)) * 9)",
        Fate("script_error"),
        "marshal.loads(marshal.dumps([1]))",
        [1],
        "import marshal",
    ),
    Attack(
        "unpickled_code",
        "pickle.loads(b\"cposix\\nsystem\\n(S'id'\\ntR.\")",
        raises("AttributeError"),
        "pickle.loads(pickle.dumps([1]))",
        [1],
        "import pickle",
    ),
    corrupting("read_past_the_end", "memory[0x7ffffff0]", breaks()),
    corrupting("read_all", "memory.count(b'x' * 9)", breaks()),
    corrupting("write_all", "for i in range(1024, len(memory)): memory[i] = 255", breaks()),
    corrupting("write_zeros", "memory[1024:1 << 24] = bytes((1 << 24) - 1024)"),
    corrupting("forget_the_types", "memory[id(int) : id(int) + 400] = b'\\xff' * 400"),
    corrupting(
        "own_the_stack", "memory[1024 : 1 << 20] = b'\\xff' * ((1 << 20) - 1024)\n1 + 1", Fate("script_error")
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_broken_interpreter_breaks_nothing_else(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_bytecode_and_memory_of_ones_own_work(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)
