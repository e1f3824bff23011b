"""Middleware: the operator's own code around each call of a script (`docs/middleware.md`).

Rule 1: it runs in the portal's process, with the portal's rights.
Rule 2: it grants nothing. What it passes on is authorized and validated like a call of the script.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from typing import TypeAlias

import structlog

from manifests.json_value import Json
from portal.base.errors import PortalError
from sandbox_runtime.call_port import CallError, Outcome
from sandbox_runtime.guest_json import encode, parse

__all__ = ["BrokerCall", "CallError", "Chain", "Middleware", "Next", "Outcome", "load_middleware"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class BrokerCall:
    """One call of a script, before it is authorized. Its function may not exist or not be granted.

    `upstream` and `tool` are None for `portal.fetch`, resources, prompts, and functions that scripts do not see.
    Middleware may replace `arguments` and nothing else. Argument names are as the script wrote them.
    """

    run_id: str
    seq: int
    """The number of the call in its run, from 1."""
    function: str
    """`namespace.function`."""
    upstream: str | None
    tool: str | None
    annotations: Mapping[str, Json]
    """What the tool declares about itself, like `destructiveHint`; empty without a tool. It is unverified."""
    arguments: dict[str, Json]
    profile: str | None
    tenant: str | None


Next: TypeAlias = Callable[[BrokerCall], Awaitable[Outcome]]
"""Passes the call on. May be called once, while the middleware runs; errors of the call come back as an outcome."""

Middleware: TypeAlias = Callable[[BrokerCall, Next], Awaitable[Outcome]]
"""`async def name(call, next)`. Its outcome is what the script gets: a JSON value, or a `CallError`."""


class MiddlewareError(Exception):
    """Middleware broke a rule of this module."""


def load_middleware(
    names: Sequence[str], folder: Path, modules: Mapping[str, bytes]
) -> tuple[Middleware, ...]:
    """Import each `package.module:name`. Modules in `folder`, beside the manifest, are found after installed ones.

    For modules in `folder` that `names` name, only the source in `modules` runs, by path, whatever the file holds now.
    `folder` is on the import path only during this call. So a module there has to import its neighbours at its top.

    Raises PortalError: a value cannot be used. The message names it and says how to fix it.
    """
    with _importable(names, folder, modules):
        return tuple(map(_load, names))


@contextmanager
def _importable(names: Sequence[str], folder: Path, modules: Mapping[str, bytes]) -> Iterator[None]:
    folder, before = folder.resolve(), [*sys.path]
    sys.path[:] = [each for each in before if Path(each or ".").resolve() != folder]
    named = {name.partition(":")[0] for name in names}
    accepted = _Accepted(folder, modules, {name for name in named if not _is_installed(name)})
    sys.path[:] = [*before, str(folder)]
    sys.meta_path.insert(0, accepted)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.meta_path.remove(accepted)
        sys.path.remove(str(folder))


def _is_installed(module: str) -> bool:
    """Whether Python finds the module or its outermost package. Importing a namespace package fixes its path."""
    top = find_spec(module.partition(".")[0])
    with suppress(ModuleNotFoundError):
        return top is not None and (top.origin is not None or find_spec(module) is not None)
    return False


class _Accepted(SourceLoader):
    """Finds and loads named modules in a folder by their accepted source, whatever lies there, compiled or not."""

    def __init__(self, folder: Path, modules: Mapping[str, bytes], named: Set[str]) -> None:
        self._sources = {str(folder / name): source for name, source in modules.items()}
        self._folder, self._named = folder, named

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if not any(f"{name}.".startswith(f"{fullname}.") for name in self._named):
            return None
        file = self.get_filename(fullname)
        if file in self._sources:
            return spec_from_file_location(fullname, file, loader=self)
        if fullname in self._named:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        # A folder without __init__.py is a package.
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(self._folder / fullname.replace(".", "/"))]
        return spec

    def get_filename(self, fullname: str) -> str:
        base = self._folder / fullname.replace(".", "/")
        package = str(base / "__init__.py")
        return package if package in self._sources else f"{base}.py"

    def get_data(self, path: str | bytes) -> bytes:
        return self._sources[os.fsdecode(path)]


def _load(written: str) -> Middleware:
    module_name, _, name = written.partition(":")
    try:
        loaded = getattr(importlib.import_module(module_name), name, None)
    except Exception as error:  # the operator's module may raise anything
        is_missing = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        if is_missing:
            hint = "Put the file beside portal.yaml, or install its package where the portal is installed."
            raise _unusable(written, f"there is no module {module_name}", hint) from error
        why = f"importing {module_name} raised {type(error).__name__}: {error}"
        raise _unusable(written, why, f"Fix it until `python -c 'import {module_name}'` works.") from error
    if loaded is None:
        hint = f"Define it there: async def {name}(call, next)."
        raise _unusable(written, f"the module {module_name} has no {name}", hint)
    if not any(map(inspect.iscoroutinefunction, (loaded, type(loaded).__call__))):
        raise _unusable(written, f"{name} is not an async function", f"Write async def {name}(call, next).")
    middleware: Middleware = loaded
    return middleware


def _unusable(written: str, why: str, hint: str) -> PortalError:
    return PortalError(f"middleware {written!r} cannot be used: {why}. {hint}")


@dataclass(eq=False)
class Chain:
    """All middleware around one call, outermost first. `send` gets a copy of the call that middleware cannot change."""

    middleware: Sequence[Middleware]
    call: BrokerCall
    send: Next
    _failure: Exception | None = None

    async def run(self) -> Outcome:
        """Return the outcome of the outermost middleware, with its value also as text.

        If middleware raises, the call fails with `middleware_error`. An exception of `send` is raised, even if
        middleware caught it.
        """
        outcome = await self._pass(self.call, 0)
        if self._failure is not None:
            raise self._failure
        return outcome

    async def _pass(self, call: BrokerCall, number: int) -> Outcome:
        if number == len(self.middleware):
            return await self._send(call)
        is_open = True

        async def pass_on(changed: BrokerCall) -> Outcome:
            nonlocal is_open
            if not is_open:
                raise MiddlewareError("next was called a second time, or after its middleware had returned")
            is_open = False
            if changed != replace(self.call, arguments=changed.arguments):
                raise MiddlewareError("only the arguments of a call may be replaced")
            return await self._pass(changed, number + 1)

        own = self.middleware[number]
        try:
            outcome = _checked(await own(call, pass_on))
            return outcome if number or outcome.error else replace(outcome, text=encode(outcome.value))
        except Exception as error:  # the operator's code may raise anything
            if error is not self._failure:
                name = getattr(own, "__qualname__", type(own).__qualname__)
                about = {"run": call.run_id, "seq": call.seq, "function": call.function[:200]}
                log.exception("middleware_failed", middleware=name, **about)
            message = f"{call.function[:200]}: the portal's middleware failed"
            hint = "Tell the operator: the portal's log says why. `calls` says whether the call was sent."
            return Outcome(error=CallError("middleware_error", message, hint))
        finally:
            is_open = False

    async def _send(self, call: BrokerCall) -> Outcome:
        if not isinstance(call.arguments, dict):
            raise MiddlewareError("the arguments of a call must be a dict")
        copied = replace(call, arguments=parse(encode(call.arguments)))
        try:
            outcome = await self.send(copied)
        except Exception as error:
            self._failure = error
            raise
        value = outcome.value if outcome.text is None else parse(outcome.text)
        # Middleware that masks values cannot mask other copies of them, so scripts get only the value, as its text.
        content: list[Json] = [{"type": "text", "text": None}]
        return Outcome(value=value, error=outcome.error, content=None if outcome.error else content)


def _checked(outcome: Outcome) -> Outcome:
    error = outcome.error if isinstance(outcome, Outcome) else MiddlewareError
    if error is None or (
        isinstance(error, CallError)
        and all(isinstance(each, str) for each in (error.code, error.message, error.hint))
    ):
        return outcome
    raise MiddlewareError(
        "middleware returned no Outcome, or one with an error that is not a CallError of strings"
    )
