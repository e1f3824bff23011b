"""Warms up the image while the component is built: runs scripts, and fills the heap.

Every instance then starts with specialised bytecode and warm caches (`python -m benchmarks.sandbox` measures it).
"""

import json

from sandbox_runtime.guest.interpreter import Interpreter

_ROUNDS = 12
_SCRIPTS = (
    # The first check of a type against an abstract class looks at all classes below that.
    "from collections import Counter\n"
    "[Counter(x) for x in ('', [], (), {1}, {}, {}.keys(), {}.values(), map(str, ()), (_ for _ in ()))]",
    "None",
    "1 + 1",
    "print('x')",
    "rows = [{'a': i, 'b': str(i)} for i in range(20)]\nsorted(rows, key=lambda row: row['b'])[:3]",
    "await warmup.one(a=1, b='x')",
    "import asyncio\nr = await asyncio.gather(*[warmup.one(i=i) for i in range(5)])\nprint(len(r))\nr",
    "from tools import warmup as r\nfor i in range(3):\n    await r.one(i=i)",
    "import asyncio\nasync with asyncio.TaskGroup() as tg:\n    t = tg.create_task(warmup.one(i=1))\nt.result()",
    "import asyncio\nasync with asyncio.timeout(5):\n    await asyncio.sleep(0.001)",
    "try:\n    await warmup.fails(a=1)\nexcept ToolError as error:\n    print(error.code)",
    "await warmup.fails(a=1)",
    "r = warmup.one(a=1)\nprint(r['content'])\n[x for x in r['content']]",
    "r1 = warmup.one(a=1)\nr2 = warmup.one(b=r1['content'][0])\n{'a': r1, 'b': [r2]}",
    "r = [await warmup.one(i=i) for i in range(5)]\n[x['content'] for x in r]",
    "async def one(i):\n    return await warmup.one(i=i)\nreturn await asyncio.gather(*[one(i) for i in range(3)])",
    "{}['missing']",
    "import asyncio\nasync def main():\n    return await warmup.one(i=1)\nasyncio.run(main())",
    "def f(:",
)
_SETTINGS = {
    "library": {"warmup": "\none async def warmup.one(...)\nfails async def warmup.fails(...)\n"},
    "argument_bytes": 1 << 20,
    "result_bytes": 1 << 20,
}
_SIZES = (*range(1 << 16, 1 << 12, -1 << 10), *range(1 << 12, 1 << 4, -8))
_HEADER = b"".__sizeof__()
_LARGER_THAN_ANY_HOLE = 1 << 20
_SPARE_BYTES = 4 << 20
"""Free memory at the end of the image. After a run that needs more a new instance is made: memory cannot shrink."""


class WarmUpHost:
    """Answers every call at once."""

    def exchange(self, outbox: str, timeout_ms: int) -> str:
        answers: list[object] = []
        for line in outbox.split("\n") if outbox else ():
            identity, function, *_ = [*line.split(" ", 2), ""]
            if function == "warmup.fails":
                answers.append([int(identity), 0, "tool_error", "it failed", ""])
            elif function:
                answers.append([int(identity), 1, {"content": [1, 2.5, "text", None, True]}])
        return json.dumps(answers) if answers else ""

    def print(self, text: str) -> None:
        """Ignore the text."""

    def emit(self, block: str) -> None:
        """Ignore the block."""


def warm_up(interpreter: Interpreter) -> None:
    """Run all scripts several times."""
    for _ in range(_ROUNDS):
        for script in _SCRIPTS:
            if "error" not in json.loads(interpreter.prepare(script, "warmup git files")):
                interpreter.execute(json.dumps(_SETTINGS))
    interpreter.forget()


def fill_holes() -> list[object]:
    """Fill the holes in the heap of the image, so that a run allocates on few pages.

    Building leaves thousands of free blocks on as many pages, and the allocator reuses those first. Each page that an
    instance writes to is copied for it, so the holes are filled permanently (`python -m benchmarks.sandbox` counts the
    pages). The caller must keep the returned objects.

    Sizes go from large to small: a block above the former top of the heap shows that no hole of its size is left.
    """
    top = id(bytes(_LARGER_THAN_ANY_HOLE))
    kept: list[object] = []
    for size in _SIZES:
        _fill(kept, size, top)
    _fill(kept, 0, top)
    bytes(_SPARE_BYTES)
    return kept


def _fill(kept: list[object], size: int, top: int) -> None:
    block: object = None
    while id(block) < top:
        block = bytes(size - _HEADER) if size else object()
        kept.append(block)
