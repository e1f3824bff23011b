"""Fetches secrets from commands and the keyring, keeps logins there, and renews headers."""

import hashlib
import os
import shlex
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio.to_thread
import structlog
from pydantic import TypeAdapter, ValidationError

from manifests.constraints import Header
from manifests.errors import ManifestError, with_extra
from manifests.exposure import command_files
from manifests.loader import MAX_PROGRAM_BYTES
from manifests.manifest import Manifest
from manifests.own_files import read_capped
from manifests.references import SecretError, SecretReference, Template

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

HeaderRenewal: TypeAlias = Callable[[], Awaitable[tuple[Mapping[str, str], Collection[str]] | None]]
"""Resolves the secrets of configured headers again: returns the headers and the secrets, None on failure."""

SECRET_SECONDS: Final = 30.0
"""Time limit for a command, and for the keyring, which may ask its owner."""

MAX_SECRET_BYTES: Final = 64 * 1024

_KILL_SECONDS: Final = 1.0
_SIGNAL_SECONDS: Final = 0.2
"""The main thread waits in such steps: a signal that another thread got is handled only after one."""
_SILENT_HINT: Final = (
    "Run it in a shell to see why. Its output is not shown here, because it may contain secrets."
)


def fetch_secrets(
    references: Collection[SecretReference], folder: Path, hashes: Mapping[str, str]
) -> Mapping[SecretReference, str | SecretError]:
    """Fetch all references concurrently.

    Commands run in `folder`, with the portal's environment and no stdin, if the files they name have these `hashes`.
    The value of a command is its stdout, at most 64 KiB of UTF-8, stripped. After `SECRET_SECONDS` a reference is an
    error, and its command is killed.
    """
    late, hints = f"returned nothing within {SECRET_SECONDS:g} s", {"command": _SILENT_HINT}
    values: dict[SecretReference, str | SecretError] = {
        each: SecretError(f"the {each.kind} {late}", hints.get(each.kind, "")) for each in references
    }
    commands = _Commands(folder)

    def fetch(reference: SecretReference) -> None:
        try:
            if reference.kind == "command":
                values[reference] = _run_command(reference.text, commands, hashes)
            else:
                values[reference] = _read_keyring(reference.text)
        except SecretError as error:
            values[reference] = error

    # Daemon threads: a keyring may ask its owner and never return.
    threads = [threading.Thread(target=fetch, args=(reference,), daemon=True) for reference in references]
    try:
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + SECRET_SECONDS
        for thread in threads:
            while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
                thread.join(min(left, _SIGNAL_SECONDS))
        return dict(values)
    finally:  # also after Ctrl-C
        commands.end()


class _Commands:
    """The commands that threads run in a folder. After `end` none is left, and none can start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._starting = threading.Lock()
        self._processes: list[Popen[bytes]] = []

    def start(self, words: Sequence[str]) -> Popen[bytes]:
        """Raises OSError, ValueError: it cannot be started."""
        with self._starting:
            process = Popen(
                words, cwd=self.folder, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, process_group=0
            )
            self._processes.append(process)
        return process

    def end(self) -> None:
        self._starting.acquire()  # never released: no further command starts
        for process in self._processes:
            if process.returncode is None:
                with suppress(ProcessLookupError, PermissionError, TimeoutExpired):
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(_KILL_SECONDS)


def _run_command(command: str, commands: _Commands, hashes: Mapping[str, str]) -> str:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SecretError(f"the command cannot be split into words: {error}") from None
    if not words:
        raise SecretError(
            "there is no command", "Write ${command:program argument ...}. It runs without a shell."
        )
    label = f"the command {words[0]!r}"
    try:
        for name in command_files(command, commands.folder):
            content = read_capped(commands.folder / name, MAX_PROGRAM_BYTES)[0]
            if hashlib.sha256(content).hexdigest() != hashes.get(name):
                message = f"{label} is not run: {name} has changed, which waits for a person"
                raise SecretError(message, "Read the change, and accept it: mcp-code-portal reload")
        process = commands.start(words)
    except (OSError, ValueError, ManifestError) as error:  # ValueError: an argument contains a NUL
        reason = getattr(error, "strerror", None) or "unknown reason"
        raise SecretError(f"{label} cannot be started: {reason}") from None
    with process:
        output, _ = process.communicate()
    if len(output) > MAX_SECRET_BYTES:
        raise SecretError(f"{label} printed more than {MAX_SECRET_BYTES} bytes")
    if process.returncode:
        ending = (
            f"exit status {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        )
        raise SecretError(f"{label} ended with {ending}", _SILENT_HINT)
    try:
        text = output.decode().strip()
    except UnicodeDecodeError:
        raise SecretError(f"the output of {label} is not UTF-8") from None
    if not text:
        raise SecretError(f"{label} printed nothing", _SILENT_HINT)
    return text


def _read_keyring(name: str) -> str:
    service, _, user = name.rpartition("/")
    if not service or not user:
        raise SecretError("the keyring reference lacks a service or a user", "Write ${keyring:service/user}.")
    value = keyring_password(service, user)
    if value is None:
        raise SecretError(
            f"the keyring has no password of {user!r} for {service!r}",
            f"Store it: keyring set {shlex.quote(service)} {shlex.quote(user)}",
        )
    return value


log = structlog.get_logger()

_HEADER: TypeAdapter[str] = TypeAdapter(Header)


def header_renewals(manifest: Manifest) -> Mapping[str, HeaderRenewal]:
    """The renewals by upstream, for headers with a secret from a command or the keyring."""
    found: dict[str, dict[str, Template]] = {}
    for path, template in manifest.templates.items():
        match path:
            case ("upstreams", upstream, "headers", header):
                found.setdefault(str(upstream), {})[str(header)] = template
    return {name: partial(_renew, manifest, name, templates) for name, templates in found.items()}


async def _renew(
    manifest: Manifest, upstream: str, templates: Mapping[str, Template]
) -> tuple[Mapping[str, str], Collection[str]] | None:
    references = {reference for template in templates.values() for reference in template.references}
    fetched = await anyio.to_thread.run_sync(
        fetch_secrets, references, manifest.folder, manifest.hashes, abandon_on_cancel=True
    )
    for error in fetched.values():
        if isinstance(error, SecretError):
            log.warning("credentials_not_renewed", upstream=upstream, reason=str(error))
            return None
    secrets = {reference: value for reference, value in fetched.items() if isinstance(value, str)}
    headers = {name: template.filled(secrets) for name, template in templates.items()}
    try:
        for value in headers.values():
            _HEADER.validate_python(value)
    except ValidationError:
        log.warning(
            "credentials_not_renewed", upstream=upstream, reason="they are not valid in an HTTP header"
        )
        return None
    return headers, tuple(secrets.values())


def keyring_password(service: str, user: str) -> str | None:
    """A stored password, or None. Raises SecretError: there is no usable keyring."""
    with _keyring() as keyring:
        return keyring.get_password(service, user)


def store_in_keyring(service: str, user: str, password: str) -> None:
    """Store or replace a password. Raises SecretError: as above."""
    with _keyring() as keyring:
        keyring.set_password(service, user, password)


def delete_from_keyring(service: str, user: str) -> None:
    """Delete a password if it exists. Raises SecretError: as above."""
    with _keyring() as keyring:
        if keyring.get_password(service, user) is not None:
            keyring.delete_password(service, user)


@contextmanager
def _keyring() -> Iterator["KeyringBackend"]:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise SecretError(
            "the keyring cannot be used: the package keyring is not installed", with_extra("keyring")
        ) from None
    try:
        yield keyring.get_keyring()
    except KeyringError as error:
        raise SecretError(f"the system has no usable keyring ({type(error).__name__})") from None
    # Each backend has its own errors, and their messages may contain the secret.
    except Exception as error:  # noqa: BLE001
        raise SecretError(f"the system's keyring failed ({type(error).__name__})") from None
