"""A script's calls and what it prints, from the guest's side; and the exceptions of ours that it can see."""

import asyncio
import collections.abc
import io
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, Protocol

from sandbox_runtime.guest.script import FILENAME
from sandbox_runtime.guest.values import NotSerializable, clean, decode, encode_arguments, replacement

_EAGER_LINES = 10_000
_BUFFER_CHARS = 4096
_PIECE_CHARS = 1 << 20
_OUTBOX_CHARS = 1 << 20
_RUN_STEP = asyncio.Handle._run.__code__  # by which the loop takes the next step of a task


class ToolError(Exception):
    """A call has no value. `str(error)` is what the tool or the portal said, `code` is stable, `hint` helps."""

    __module__ = "portal"

    def __init__(self, message: str = "", code: str = "tool_error", hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class DeadlockError(RuntimeError):
    """The script waits for something that can never happen."""

    __module__ = "builtins"


class Host(Protocol):
    """The `host` interface of wit/sandbox.wit."""

    def exchange(self, outbox: str, timeout_ms: int) -> str: ...
    def print(self, text: str) -> None: ...
    def emit(self, block: str) -> None: ...


class Output(io.TextIOBase):
    """A text stream that ends at the host.

    The first 10,000 lines of a run exchange one by one, so that a run that is stopped keeps what it printed;
    later ones in pieces of 4 KB, so that a flood costs little.
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
        self._is_replaced = False

    def notices(self) -> list[str]:
        """What a reader of the run's output should know."""
        return [replacement("stdout")] if self._is_replaced else []

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """As standard output has it; what is written to the number itself is captured by nobody."""
        return 1

    def write(self, text: str | bytes) -> int:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")  # what is written to `sys.stdout.buffer`
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._parts.append(text)
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
    """Starts calls, hands them to the host in batches, and gives each its answer."""

    def __init__(self, host: Host, output: Output) -> None:
        self.argument_bytes = 1 << 20
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
        """Start a run: what an earlier one left open is nobody's business now."""
        self._outbox: list[str] = []
        self._outbox_chars = 0
        self._pending: dict[int, _CallFuture] = {}
        self._sync_answers: dict[int, Any] = {}
        self._unsent: dict[int, str] = {}
        self._unstarted: dict[int, tuple[str, int | None]] = {}
        self._notices: dict[str, None] = {}

    def end(self) -> None:
        """End a run. Calls that were begun and not sent are not made any more; the host hears that there were some."""
        if self._unsent:
            sent = [line for line in self._outbox if int(line.partition(" ")[0]) not in self._unsent]
            self._outbox = sent + [f"{identity} {function} ~" for identity, function in self._unsent.items()]
            self.exchange(0)

    def create(
        self,
        function: str,
        arguments: dict[str, object],
        convert: Callable[[Any], Any] | None = None,
    ) -> "Call":
        """A call that has not started; `convert` makes of its value what the script gets."""
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
            # The host refuses it all the same; it only needs to know how large it would have been.
            text = f"!{size}"
        self._last += 1
        future = self._pending[self._last] = _CallFuture(self, self._last, call._convert)
        self._unsent[self._last] = call._function
        self._post(f"{self._last} {call._function} {text}")
        return future

    def ask(self, function: str, arguments: str) -> Any:
        """Make a call and wait for its answer, here and now: no other task goes on meanwhile.

        Raises:
            ToolError: It has no value.
        """
        self._last += 1
        identity = self._last
        self._sync_answers[identity] = None
        self._post(f"{identity} {function} {arguments}")
        while self._sync_answers[identity] is None:
            self.exchange(-1)
        answer = self._sync_answers.pop(identity)
        if answer[1]:
            return answer[2]
        raise ToolError(answer[3], answer[2], answer[4])

    def forget(self, call: "Call") -> None:
        self._unstarted.pop(call._created, None)

    def cancel(self, identity: int) -> None:
        if self._pending.pop(identity, None) is not None:
            self._post(str(identity))

    def exchange(self, timeout_ms: int) -> None:
        """Hand over what is to be done, wait for responses at most `timeout_ms` (negative: without end), deliver it."""
        self._output.flush()
        outbox = "\n".join(self._outbox)
        self._outbox.clear()
        self._outbox_chars = 0
        self._unsent.clear()
        if responses := self._host.exchange(outbox, timeout_ms):
            self._deliver(responses)

    def notices(self) -> list[str]:
        """About calls that were written and never ran, and arguments that did not reach the host as they were."""
        places = dict.fromkeys(self._unstarted.values())
        never_awaited = [
            f"`{function}(...)`{f' on line {line}' if line else ''} was never awaited, so it never ran"
            for function, line in places
        ]
        return never_awaited[:10] + list(self._notices)[:10]

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
            if answer[1]:
                future.set_result(answer[2] if future.convert is None else future.convert(answer[2]))
            else:
                future.set_exception(ToolError(answer[3], answer[2], answer[4]))


def _script_line() -> int | None:
    """The line of the script that is at work, if any: a task may have been begun by a library."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not _RUN_STEP:
        if frame.f_code.co_filename == FILENAME:
            return frame.f_lineno
        frame = frame.f_back
    return None


class _CallFuture(asyncio.Future):  # type: ignore[type-arg]  # the C class takes no arguments at run time here
    """The answer to come; cancelling it cancels the call at the host."""

    def __init__(self, calls: Calls, identity: int, convert: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self.convert = convert
        self._calls = calls
        self._identity = identity

    def cancel(self, msg: Any = None) -> bool:
        self._calls.cancel(self._identity)
        return super().cancel(msg)


def _refuse(call: "Call", *_: object) -> NoReturn:
    raise TypeError(call.advice())


@dataclass(eq=False, repr=False, slots=True)
class Call(NotSerializable, collections.abc.Coroutine):  # type: ignore[type-arg]
    """A call that has not started: like a coroutine it starts when it is awaited or made a task.

    Used as if it were its value, it says what is missing.
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
                f"cannot await the same call of {self._function} twice: keep its value, or make a task of it"
            )
        self._iterator = iter(())  # whatever happens now, it was awaited
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
            return self._function  # a coroutine has it, and asyncio tells it
        if name.startswith(("_", "cr_", "gi_", "ag_")):
            raise AttributeError(name)
        _refuse(self)

    def __bool__(self) -> bool:
        """Like a coroutine it is there: `if call: await call` is right as it stands."""
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
