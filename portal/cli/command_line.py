"""Reads the command line and runs one command."""

import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module

import anyio

from manifests.errors import ManifestError
from manifests.loader import find_manifest, load_manifest
from manifests.manifest import Manifest
from portal.cli.arguments import argument_parser
from portal.cli.ending import INTERRUPTED, TERMINATED, until_signal
from portal.cli.terminal import Terminal
from portal.errors import PortalError
from portal.logs import configure_logs
from portal.secret_sources import fetch_secrets
from sandbox_runtime.errors import SandboxError
from upstreams.open_files import allow_enough

USAGE_ERROR = 2

_TOLD = (SandboxError, PortalError, ManifestError, OSError)
"""Errors that their own text explains; anything else is a defect of ours and keeps its traceback."""


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status.

    0, 1 it failed, 2 it was asked wrongly or the manifest cannot be used, 3 `check --strict` warned, 130 Ctrl-C, 143
    SIGTERM; for `serve` SIGTERM is the usual end, and 0.
    """
    terminal = Terminal()
    options = argument_parser().parse_args(arguments)
    configure_logs(options.log_level)
    allow_enough()
    try:
        # Imported by name, because the SDK behind most commands takes a second to import and --help needs none of it.
        command = import_module(f"portal.cli.{options.command}").command
        path = find_manifest(options.config, os.environ) if options.needs_manifest else None
        manifest = load_manifest(path, os.environ, fetch_secrets)
        if options.profile is not None and options.profile not in manifest.portal.profiles:
            terminal.error(_no_profile(options.profile, manifest))
            return USAGE_ERROR
        status = anyio.run(until_signal, partial(command, manifest, options, terminal))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseExceptionGroup as group:
        return _told(group, terminal)
    except ManifestError as error:
        terminal.error(*error.lines())
        if options.command == "check" and options.json:
            # A machine that reads the findings reads these too.
            import_module("portal.cli.check").tell_unusable(error, terminal)
        return USAGE_ERROR
    return 0 if options.command == "serve" and status == TERMINATED else status


def _told(group: BaseExceptionGroup[BaseException], terminal: Terminal) -> int:
    """The command failed: tell each cause, or raise what nobody can have expected."""
    causes = list(_causes(group))
    if all(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return INTERRUPTED
    if not all(isinstance(cause, _TOLD) for cause in causes):
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


def _no_profile(name: str, manifest: Manifest) -> str:
    near = get_close_matches(name, manifest.portal.profiles, n=1) or sorted(manifest.portal.profiles)
    return f"the manifest has no profile {name!r}; there are: {', '.join(near) or 'none'}"
