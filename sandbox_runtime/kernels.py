"""The kernels: for each language the component that its scripts run in, and what its errors and hints call things.

Everything else is the same for all kernels: they have one port (wit/sandbox.wit), and one host.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from manifests.kernels import JAVASCRIPT, PYTHON, KernelName


@dataclass(frozen=True, slots=True)
class Kernel:
    """What runs the scripts of one language."""

    name: KernelName
    language: str
    file: str
    """The component's file in this folder."""
    builder: str
    """The module that builds it."""
    warm_up: bytes
    """A script that uses what most scripts use: the pages that it writes to are restored in advance after each run."""
    parallel: str
    """What makes calls in parallel. This and the next three are words of the language, for messages."""
    stack_error: str
    """The error of a recursion that is too deep."""
    crash_error: str
    """The error of the interpreter itself."""
    wait_hint: str = ""
    has_engine_threads: bool = False
    """Whether the component uses WASI's streams and timers, for which the engine starts threads."""


_PYTHON: Final = Kernel(
    name=PYTHON,
    language="Python",
    file="guest.wasm",
    builder="sandbox_runtime.build_guest",
    parallel="asyncio.gather",
    stack_error="RecursionError",
    crash_error="SystemError",
    wait_hint="Use asyncio, time.sleep or select.select.",
    warm_up=b"""\
rows = [await warmup.one(i=i) for i in range(2)]
rows += await asyncio.gather(*[warmup.one(i=i) for i in range(2)])
print(len(rows))
[row["content"] for row in rows]
""",
    has_engine_threads=True,
)

_JAVASCRIPT: Final = Kernel(
    name=JAVASCRIPT,
    language="JavaScript",
    file="js.wasm",
    builder="sandbox_runtime.build_js",
    parallel="Promise.all",
    stack_error="RangeError",
    crash_error="InternalError",
    warm_up=b"""\
const rows = [await warmup.one({i: 0}), ...(await Promise.all([1, 2].map((i) => warmup.one({i}))))];
console.log(rows.length, rows[0]);
rows.map((row) => row.content);
""",
)

KERNELS: Final[Mapping[KernelName, Kernel]] = MappingProxyType({PYTHON: _PYTHON, JAVASCRIPT: _JAVASCRIPT})
