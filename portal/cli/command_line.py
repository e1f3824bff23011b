"""Reads the command line and runs one command, until it ends or a signal ends it."""

import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Final

import anyio

from manifests.errors import ManifestError
from manifests.loader import find_manifest, load_manifest
from portal.cli.arguments import argument_parser
from portal.cli.terminal import Terminal, unknown_name
from portal.errors import PortalError
from portal.logs import configure_logs
from portal.secret_sources import fetch_secrets
from sandbox_runtime.errors import SandboxError
from upstreams.child_process import allow_open_files

USAGE_ERROR: Final = 2

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit status that a shell reports for a command that Ctrl-C ended."""

TERMINATED: Final = 128 + signal.SIGTERM

END_SECONDS: Final = 15
"""How long a cancelled command may take to end its upstreams, workers and responses."""

_EXPLAINED: Final = (SandboxError, PortalError, ManifestError, OSError)
"""Errors that their own text explains; anything else is a defect of ours and keeps its traceback."""


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status.

    0, 1 it failed, 2 it was asked wrongly or the manifest cannot be used, 3 `check --strict` warned, 130 Ctrl-C, 143
    SIGTERM; for `serve` SIGTERM is the usual end, and 0.
    """
    terminal = Terminal()
    options = argument_parser().parse_args(arguments)
    configure_logs(options.log_level)
    allow_open_files()
    try:
        # Imported by name, because the SDK behind most commands takes a second to import and --help needs none of it.
        module, _, function = options.runs.partition(":")
        command = getattr(import_module(f"portal.cli.{module}"), function)
        path = find_manifest(options.config, os.environ) if options.needs_manifest else None
        manifest = load_manifest(path, os.environ, fetch_secrets)
        if options.profile is not None and options.profile not in manifest.portal.profiles:
            terminal.error(unknown_name("profile", options.profile, manifest.portal.profiles))
            return USAGE_ERROR
        status = anyio.run(_until_signal, partial(command, manifest, options, terminal))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseExceptionGroup as group:
        return _told(group, terminal)
    except ManifestError as error:
        terminal.error(*error.lines())
        if options.runs == "check:command" and options.json:
            # A machine that reads the findings reads these too.
            import_module("portal.cli.check").tell_unusable(error, terminal)
        return USAGE_ERROR
    return 0 if options.runs == "serve:command" and status == TERMINATED else status


async def _until_signal(command: Callable[[], Awaitable[int]]) -> int:
    """The exit status of a command; Ctrl-C and SIGTERM cancel it in order, a second one ends it at once.

    Raises:
        BaseExceptionGroup: Of whatever the command raised.
    """
    received: list[int] = []
    status = 0
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(_cancel, scope, received)
            status = await command()
        tasks.cancel_scope.cancel()
    return 128 + received[0] if received else status


async def _cancel(scope: anyio.CancelScope, received: list[int]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        number = await anext(signals)
        received.append(number)
        scope.cancel()
        with anyio.move_on_after(END_SECONDS):
            await anext(signals)
        os._exit(128 + number)


def _told(group: BaseExceptionGroup[BaseException], terminal: Terminal) -> int:
    """The command failed: tell each cause, or raise what nobody can have expected."""
    causes = list(_causes(group))
    if all(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return INTERRUPTED
    if not all(isinstance(cause, _EXPLAINED) for cause in causes):
        raise group
    for cause in causes:
        if not isinstance(cause, BrokenPipeError):  # who reads our output has seen enough of it
            terminal.error(*_lines(cause))
    return USAGE_ERROR if any(isinstance(cause, ManifestError) for cause in causes) else 1


def _causes(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for cause in group.exceptions:
        if isinstance(cause, BaseExceptionGroup):
            yield from _causes(cause)
        else:
            yield cause


def _lines(error: BaseException) -> list[str]:
    if isinstance(error, ManifestError):
        return [*error.lines()]
    told, hint = str(error), getattr(error, "hint", "")
    end = "." if hint and told[-1:].isalnum() else ""
    return [f"{told}{end} {hint}".strip()]
