"""Runs one command, until it ends or a signal ends it."""

import argparse
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

import anyio

from manifests.errors import ManifestError
from manifests.loader import DEFAULT_FILE, find_manifest, load_manifest, parse_manifest, read_files
from manifests.manifest import Manifest
from portal.app.accepted import Acceptance, choose_files, note_start, reload_hint
from portal.app.hang_ups import handle_hang_ups
from portal.base.errors import PortalError
from portal.cli.terminal import Terminal, unknown_name
from portal.records.logs import configure_logs
from sandbox_runtime.errors import SandboxError
from upstreams.secret_sources import fetch_secrets
from upstreams.transports.child_process import allow_open_files

USAGE_ERROR: Final = 2

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit status that a shell reports for a command that Ctrl-C ended."""

TERMINATED: Final = 128 + signal.SIGTERM

END_SECONDS: Final = 15
"""Time for a cancelled command to end its upstreams and workers, after the responses that `serve --http` drains."""

_EXPLAINED: Final = (SandboxError, PortalError, ManifestError, OSError)
"""Errors whose text explains them. Any other error is a bug of the portal and keeps its traceback."""


def run_command(options: argparse.Namespace) -> int:
    """Run one command and return its exit status.

    0: success; 1: failure; 2: wrong usage or invalid manifest; 3: `check --strict` has warnings; 130: Ctrl-C; 143:
    SIGTERM. For `serve`, SIGTERM is the normal end, and the status is 0.
    """
    terminal = Terminal()
    if options.runs == "serve:command":
        handle_hang_ups()
    configure_logs(options.log_level)
    allow_open_files()
    try:
        # Imported by name, because each command needs other modules, and the SDK takes half a second to import.
        module, _, function = options.runs.partition(":")
        command = getattr(import_module(f"portal.cli.{module}"), function)
        path = find_manifest(options.config, os.environ) if options.needs_manifest else None
        if path is None and options.needs_manifest and Acceptance(DEFAULT_FILE).hashes():
            path = DEFAULT_FILE  # a missing file counts as a change
        manifest = _manifest(path, options, terminal)
        if options.profile is not None and options.profile not in manifest.portal.profiles:
            terminal.error(unknown_name("profile", options.profile, manifest.portal.profiles))
            return USAGE_ERROR
        is_draining = options.runs == "serve:command" and options.http is not None
        end_seconds = END_SECONDS + (manifest.portal.server.drain_seconds if is_draining else 0)
        work = partial(command, manifest, options, terminal)
        status = anyio.run(_until_signal, work, terminal, end_seconds)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseExceptionGroup as group:
        return _report_failure(group, terminal)
    except ManifestError as error:
        terminal.error(*error.lines())
        if options.runs == "check:command" and options.json:
            # Programs that read the findings as JSON read these too.
            import_module("portal.cli.check").report_invalid_manifest(error, terminal)
        return USAGE_ERROR
    except OSError as error:  # before the command began, such as for a folder that was deleted
        terminal.error(f"{error.strerror or error}: {error.filename or 'the current folder'}")
        return 1
    return 0 if options.runs == "serve:command" and status == TERMINATED else status


def _manifest(path: Path | None, options: argparse.Namespace, terminal: Terminal) -> Manifest:
    """Load the accepted manifest. Nothing in a change that waits runs, unless `options` say so.

    Raises ManifestError.
    """
    if path is None:
        return load_manifest(None, os.environ)
    files, waiting = (read_files(path, os.environ), ()) if options.takes_all else choose_files(path)
    manifest = replace(parse_manifest(files, os.environ, fetch_secrets), waiting=waiting)
    if waiting:
        why = "because it was made while a portal ran or after one was killed, and is not used"
        terminal.note(f"a change of {', '.join(waiting)} waits, {why}; {reload_hint(path)}")
    if options.runs == "serve:command":
        note_start(files, waiting)
    return Acceptance(path).with_copies(manifest)


async def _until_signal(command: Callable[[], Awaitable[int]], terminal: Terminal, end_seconds: float) -> int:
    """Run a command and return its exit status. Ctrl-C and SIGTERM cancel it, and it gets `end_seconds` to end; a
    second signal ends it at once.

    Raises BaseExceptionGroup: contains the exceptions of the command.
    """
    received: list[int] = []
    status = 0
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(_cancel, scope, received, terminal, end_seconds)
            status = await command()
        tasks.cancel_scope.cancel()
    return 128 + received[0] if received else status


async def _cancel(
    scope: anyio.CancelScope, received: list[int], terminal: Terminal, end_seconds: float
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        number = await anext(signals)
        received.append(number)
        scope.cancel()
        with anyio.move_on_after(end_seconds) as end:
            await anext(signals)
        if end.cancelled_caught:
            terminal.error(f"cut off, because it did not end within {end_seconds:g} s")
        os._exit(128 + number)


def _report_failure(group: BaseExceptionGroup[BaseException], terminal: Terminal) -> int:
    """Print the causes of a failure and return the exit status. Raises `group` if a cause is unexpected."""
    causes = list(_causes(group))
    if all(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return INTERRUPTED
    if not all(isinstance(cause, _EXPLAINED) for cause in causes):
        raise group
    for cause in causes:
        if not isinstance(cause, BrokenPipeError):  # the reader of the output has closed it
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
    code = getattr(error, "code", "") if isinstance(error, PortalError) else ""
    message, hint = f"{code}: {error}" if code else str(error), getattr(error, "hint", "")
    end = "." if hint and message[-1:] not in ".!?:" else ""
    return [f"{message}{end} {hint}".strip()]
