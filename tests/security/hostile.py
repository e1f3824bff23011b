"""The beginning of hostile scripts, and a measure of their effect on everyone else."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from manifests.json_value import Json

RAW_HOST = "from wit_world.imports import host\n"
"""Past all that the guest checks: the host function itself."""

RAW_FILES = (
    RAW_HOST
    + """
import json
def raw(operation, arguments):
    line = arguments if isinstance(arguments, str) else json.dumps(arguments)
    raw.number += 1
    return json.loads(host.exchange(f"{raw.number} portal.files.{operation} {line}", -1))[0]
raw.number = 1000
"""
)
"""An operation on a granted folder past the guest's own checks."""


def words(text: str) -> list[str]:
    """A table of words: one on each line would fill pages."""
    return text.split()


ON_ONE_PATH: dict[str, dict[str, Json]] = {
    name: {"base64": "eA=="} if name in ("write", "append") else {}
    for name in words("read stat list create write append mkdir remove rmdir")
}
"""The operations on one path, with what else they take."""

MOST_SECONDS = 2.0
"""The attacks below held the event loop for 3 to 40 s of computing; the tests' machine may be slow."""

_TICK_SECONDS = 0.01

INTERPRETER = """
import sys
def interpreter():
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if type(value).__name__ == "Interpreter":
                return type(value)
        frame = frame.f_back
"""
"""Finds the class that the host calls into, to put other methods in the place of its own."""

OWN_FRAMES = """
import gc, sys
def frame(name):
    found = sys._getframe()
    while found.f_code.co_name != name:
        found = found.f_back
    return found
def interpreter_itself():
    return frame("execute").f_locals["self"]
"""
"""Finds the frames and objects of the interpreter that runs the script."""

ALL_MEMORY = """
import opcode, struct
def all_memory():
    def f(): return None
    fake = struct.pack("<IIiiIII", 1 << 28, id(bytearray), 0x7fffffff, 0x7fffffff, 0, 0, 0)
    pointer = struct.pack("<I", id(fake) + bytes.__basicsize__ - 1)
    constants = (None,)
    first = id(constants) + tuple.__basicsize__
    index = (id(pointer) + bytes.__basicsize__ - 1 - first) % (1 << 32) // 4
    steps = [("RESUME", 0), *(("EXTENDED_ARG", index >> shift & 255) for shift in (24, 16, 8))]
    steps += [("LOAD_CONST", index & 255), ("RETURN_VALUE", 0)]
    code = bytes(byte for name, argument in steps for byte in (opcode.opmap[name], argument))
    f.__code__ = f.__code__.replace(co_code=code, co_consts=constants)
    kept.append((fake, pointer, constants))
    return f()
kept = []
"""
"""A bytearray over the whole linear memory, by loading a constant that lies outside the tuple of constants."""


@dataclass
class Delay:
    """The longest computing for which the event loop, and so every other client, had to wait."""

    seconds: float = 0.0


@asynccontextmanager
async def watched() -> AsyncIterator[Delay]:
    delay = Delay()
    watching = asyncio.create_task(_watch(delay))
    try:
        yield delay
        await asyncio.sleep(_TICK_SECONDS)  # what held the loop last is seen only by the tick after it
    finally:
        watching.cancel()


async def _watch(delay: Delay) -> None:
    while True:
        # Of this process, not of the wall: other tests may use the cores.
        began = time.process_time()
        await asyncio.sleep(_TICK_SECONDS)
        delay.seconds = max(delay.seconds, time.process_time() - began)
