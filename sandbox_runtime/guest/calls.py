"""The guest's side of calls and output, and the exceptions that scripts see."""

import asyncio
import collections.abc
import io
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, Protocol

from sandbox_runtime.guest.results import Results
from sandbox_runtime.guest.script import FILENAME
from sandbox_runtime.guest.values import NotSerializable, clean, decode, encode_arguments, replacement

_EAGER_LINES = 10_000
_BUFFER_CHARS = 4096
_PIECE_CHARS = 1 << 20
_OUTBOX_CHARS = 1 << 20
_RUN_STEP = asyncio.Handle._run.__code__  # runs the next step of a task


class ToolError(Exception):
    """A call failed. `str(error)` is the message, `code` is stable, `hint` says what to do.

    `data` and `blocks` are what the upstream sent besides its text: data for programs, and all content blocks.
    """

    __module__ = "portal"

    def __init__(
        self, message: str = "", code: str = "tool_error", hint: str = "", data: Any = None, blocks: Any = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.data = data
        self.blocks = list(blocks or ())


class DeadlockError(RuntimeError):
    """The script waits for an event that can never happen."""

    __module__ = "builtins"


class Host(Protocol):
    """The `host` interface of wit/sandbox.wit."""

    def exchange(self, outbox: str, timeout_ms: int) -> str: ...
    def print(self, text: str) -> None: ...
    def emit(self, block: str) -> None: ...


class Output(io.TextIOBase):
    """A text stream to the host.

    The first 10,000 lines of a run are sent one by one, so that a stopped run keeps its output. Later ones are sent in
    chunks of 4 KB, so that a flood costs little.
    """

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, host: Host) -> None:
        self._out = host
        self._parts: list[str] = []
        self._chars = 0
        self._eager_lines = _EAGER_LINES
        self._is_replaced = False
        self.buffer = self

    def begin(self) -> None:
        """Start a run."""
        self._eager_lines = _EAGER_LINES
        self._is_replaced = self.is_used = False

    def notices(self) -> list[str]:
        """Notices about the run's output."""
        return [replacement("stdout")] if self._is_replaced else []

    def writable(self) -> bool:
        return True

    def reconfigure(self, **_: object) -> None:
        """Nothing: the encoding stays UTF-8."""

    def fileno(self) -> int:
        """The number of standard output. Writes to the descriptor itself are not captured."""
        return 1

    def write(self, text: str | bytes) -> int:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")  # from `sys.stdout.buffer`
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._parts.append(text)
        self.is_used = True
        self._chars += len(text)
        if self._chars >= _BUFFER_CHARS:
            self.flush()
        elif self._eager_lines and "\n" in text:
            self._eager_lines -= 1
            self.flush()
        return len(text)

    def flush(self) -> None:
        if not self._parts:
            return
        written = "".join(self._parts)
        text = clean(written)
        self._is_replaced |= text is not written
        self._parts.clear()
        self._chars = 0
        for start in range(0, len(text), _PIECE_CHARS):
            self._out.print(text[start : start + _PIECE_CHARS])


class Calls:
    """Starts calls, sends them to the host in batches, and delivers the answers."""

    def __init__(self, host: Host, output: Output) -> None:
        self.argument_bytes = 1 << 20
        self.results = Results()
        self._host = host
        self._output = output
        self._created = 0
        self._last = 0
        self.begin()

    @property
    def is_waiting(self) -> bool:
        """Whether the host owes an answer."""
        return bool(self._pending)

    def begin(self) -> None:
        """Start a run, dropping what an earlier one left open."""
        self._outbox: list[str] = []
        self._outbox_chars = 0
        self._pending: dict[int, _CallFuture] = {}
        """The started calls without an answer, by number."""
        self._sync_answers: dict[int, Any] = {}
        """The answers to calls of `ask`, by number; None until they arrive."""
        self._unstarted: dict[int, tuple[str, int | None]] = {}
        """Function and line of the calls that were created and not awaited yet."""
        self._notices: dict[str, None] = {}
        self.results.begin()

    def end(self) -> None:
        """End a run. Unsent calls are not made; they are only reported to the host."""
        lines = [line.split(" ", 2) for line in self._outbox]
        if any(call for _, *call in lines):
            self._outbox = [f"{number} {call[0]} ~" if call else number for number, *call in lines]
            self.exchange(0)

    def create(
        self, function: str, arguments: dict[str, object], convert: Callable[[Any], Any] | None = None
    ) -> "Call":
        """Create a call that starts when it is awaited; `convert` converts its value for the script."""
        self._created += 1
        self._unstarted[self._created] = (function, _script_line())
        return Call(self, self._created, function, arguments, convert)

    def start(self, call: "Call") -> "_CallFuture":
        self.forget(call)
        encoded, converted = encode_arguments(call._function, call._arguments)
        self._notices.update(dict.fromkeys(converted))
        text = clean(encoded)
        if text is not encoded:
            self._notices[replacement(f"arguments of {call._function}")] = None
        size = len(text) if text.isascii() else len(text.encode())
        if size > self.argument_bytes:
            # The host refuses it in any case, and only needs the size for its message.
            text = f"!{size}"
        self._last += 1
        future = self._pending[self._last] = _CallFuture(self, self._last, call)
        self._post(f"{self._last} {call._function} {text}")
        return future

    def ask(self, function: str, arguments: str) -> Any:
        """Make a call synchronously: no other task runs until it is answered. Raises ToolError if it fails."""
        self._last += 1
        identity = self._last
        self._sync_answers[identity] = None
        self._post(f"{identity} {function} {arguments}")
        while self._sync_answers[identity] is None:
            self.exchange(-1)
        answer = self._sync_answers.pop(identity)
        if answer[1]:
            return answer[2]
        raise ToolError(answer[3], answer[2], *answer[4:])

    def forget(self, call: "Call") -> None:
        self._unstarted.pop(call._created, None)

    def cancel(self, identity: int) -> None:
        if self._pending.pop(identity, None) is not None:
            self._post(str(identity))

    def exchange(self, timeout_ms: int) -> None:
        """Send the outbox, wait at most `timeout_ms` for responses (negative: no limit), and deliver them."""
        self._output.flush()
        outbox = "\n".join(self._outbox)
        self._outbox.clear()
        self._outbox_chars = 0
        if responses := self._host.exchange(outbox, timeout_ms):
            self._deliver(responses)

    def notices(self) -> list[str]:
        """Notices about calls that were never awaited, converted arguments, and content beside the data of calls."""
        places = dict.fromkeys(self._unstarted.values())
        never_awaited = [
            f"`{function}(...)`{f' on line {line}' if line else ''} was never awaited, so it never ran"
            for function, line in places
        ]
        return never_awaited[:10] + list(self._notices)[:10] + self.results.notices()

    def _post(self, line: str) -> None:
        self._outbox.append(line)
        self._outbox_chars += len(line)
        if self._outbox_chars > _OUTBOX_CHARS:
            self.exchange(0)

    def _deliver(self, responses: str) -> None:
        for answer in decode(responses):
            if answer[0] in self._sync_answers:
                self._sync_answers[answer[0]] = answer
                continue
            future = self._pending.pop(answer[0], None)
            if future is None or future.done():
                continue
            if not answer[1]:
                future.set_exception(ToolError(answer[3], answer[2], *answer[4:]))
            elif future.convert is not None:
                future.set_result(future.convert(answer[2]))
            else:
                if not future.function.startswith("portal."):
                    self.results.note(future.function, *answer[2:])
                future.set_result(answer[2])


def _script_line() -> int | None:
    """The current line of the script, if any: a library may have started the task."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not _RUN_STEP:
        if frame.f_code.co_filename == FILENAME:
            return frame.f_lineno
        frame = frame.f_back
    return None


class _CallFuture(asyncio.Future):  # type: ignore[type-arg]  # the C class takes no arguments at run time here
    """The future answer of a call. Cancelling it cancels the call at the host."""

    def __init__(self, calls: Calls, identity: int, call: "Call") -> None:
        super().__init__()
        self.convert, self.function = call._convert, call._function
        self._calls = calls
        self._identity = identity

    def cancel(self, msg: Any = None) -> bool:
        self._calls.cancel(self._identity)
        return super().cancel(msg)


def _refuse(call: "Call", *_: object) -> NoReturn:
    raise TypeError(call.advice())


@dataclass(eq=False, repr=False, slots=True)
class Call(NotSerializable, collections.abc.Coroutine):  # type: ignore[type-arg]
    """A call that has not started. Like a coroutine it starts when it is awaited or made a task.

    Using it as if it were its value raises a TypeError that says to await it.
    """

    _calls: Calls
    _created: int
    _function: str
    _arguments: dict[str, object]
    _convert: Callable[[Any], Any] | None
    _iterator: Any = None

    def advice(self) -> str:
        return f"`{self._function}(...)` was not awaited: write `await {self._function}(...)`"

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._iterator is not None:
            raise RuntimeError(
                f"cannot await the same call of {self._function} twice: store its value, or create a task"
            )
        self._iterator = iter(())  # it counts as awaited even if starting fails
        self._iterator = self._calls.start(self).__await__()
        return self._iterator  # type: ignore[no-any-return]

    def send(self, value: Any) -> Any:
        if self._iterator is None:
            self.__await__()
        return self._iterator.send(value)

    def throw(self, *error: Any) -> Any:
        if self._iterator is None:
            self.close()
            raise error[0]
        return self._iterator.throw(*error)

    def close(self) -> None:
        if self._iterator is None:
            self._calls.forget(self)
            self._iterator = iter(())
        elif hasattr(self._iterator, "close"):
            self._iterator.close()

    def __repr__(self) -> str:
        return f"<call of {self._function}, not awaited>"

    def __getattr__(self, name: str) -> str:
        if name in ("__name__", "__qualname__"):
            return self._function  # asyncio shows it, as for a coroutine
        if name.startswith(("_", "cr_", "gi_", "ag_")):
            raise AttributeError(name)
        _refuse(self)

    def __bool__(self) -> bool:
        """True, like a coroutine: `if call: await call` is correct. An approval raises: no one gave it yet."""
        if self._function == "portal.approve":
            _refuse(self)
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            _refuse(self)
        return self is other

    __hash__ = object.__hash__
    __getitem__ = __setitem__ = __delitem__ = __iter__ = __len__ = __contains__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __or__ = __ror__ = __and__ = (
        _refuse
    )
    __truediv__ = __floordiv__ = __neg__ = __int__ = __float__ = __index__ = __enter__ = __exit__ = (
        __aenter__
    ) = __aexit__ = __aiter__ = _refuse
