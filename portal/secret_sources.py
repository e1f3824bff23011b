"""Where secrets come from: the environment, commands, keyrings; and headers that are fetched anew."""

import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread
import structlog
from pydantic import TypeAdapter, ValidationError

from manifests.constraints import Header
from manifests.manifest import Manifest
from manifests.references import SecretError, SecretReference, Template
from upstreams.http_credentials import HeaderRenewal
from upstreams.system_keyring import keyring_password

SECRET_SECONDS: Final = 30.0
"""How long a command may run, and how long the keyring may ask its owner."""

MAX_SECRET_BYTES: Final = 64 * 1024

_SILENT_HINT: Final = (
    "Run it in a shell to see why. What it prints is not shown here, because it may hold secrets."
)


def fetch_secrets(
    references: Collection[SecretReference], folder: Path
) -> Mapping[SecretReference, str | SecretError]:
    """All of them side by side; commands run in `folder`, with the portal's own environment and no stdin.

    Of a command it is what it prints on stdout, at most 64 KiB of UTF-8, without white space around it. What has not
    come after `SECRET_SECONDS` counts as an error, and its command is killed.
    """
    fetches = [_Fetch(reference, folder) for reference in references]
    try:
        for fetch in fetches:
            fetch.start()
        deadline = time.monotonic() + SECRET_SECONDS + 1
        for fetch in fetches:
            fetch.join(max(0.0, deadline - time.monotonic()))
        return {fetch.reference: fetch.value for fetch in fetches}
    finally:  # also when the operator lost patience
        for fetch in fetches:
            fetch.stop()


class _Fetch(threading.Thread):
    """One secret, in a thread that nobody has to wait for: a keyring may ask its owner, and not come back."""

    def __init__(self, reference: SecretReference, folder: Path) -> None:
        super().__init__(daemon=True)
        self.reference = reference
        self.value: str | SecretError = SecretError(
            f"the {reference.kind} gave nothing within {SECRET_SECONDS:g} s"
        )
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        try:
            self.value = self._command() if self.reference.kind == "command" else self._keyring()
        except SecretError as error:
            self.value = error
        except ValueError:  # a NUL in the command line, which a program cannot be given
            self.value = SecretError("the command holds a character that no command can hold")

    def stop(self) -> None:
        """Leave nothing running."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _command(self) -> str:
        words = _words(self.reference.text)
        try:
            process = subprocess.Popen(
                words,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            reason = error.strerror or "unknown reason"
            raise SecretError(f"the command {words[0]!r} cannot be started: {reason}") from None
        self._process = process
        with process:
            try:
                output, _ = process.communicate(timeout=SECRET_SECONDS)
            except subprocess.TimeoutExpired:
                self.stop()
                told = f"the command {words[0]!r} gave nothing within {SECRET_SECONDS:g} s"
                raise SecretError(told, _SILENT_HINT) from None
        if len(output) > MAX_SECRET_BYTES:
            raise SecretError(f"the command {words[0]!r} printed more than {MAX_SECRET_BYTES} bytes")
        if process.returncode:
            raise SecretError(f"the command {words[0]!r} {_ending(process.returncode)}", _SILENT_HINT)
        return _text(output, words[0])

    def _keyring(self) -> str:
        service, _, user = self.reference.text.rpartition("/")
        if not service or not user:
            raise SecretError(
                "the keyring is asked for something without a name", "Write ${keyring:service/user}."
            )
        value = keyring_password(service, user)
        if value is None:
            raise SecretError(
                f"the keyring holds no password of {user!r} for {service!r}",
                f"Put it there: keyring set {shlex.quote(service)} {shlex.quote(user)}",
            )
        return value


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SecretError(f"the command cannot be split into words: {error}") from None
    if not words:
        raise SecretError("there is no command", "Write ${command:program argument ...}; it has no shell.")
    return words


def _ending(returncode: int) -> str:
    if returncode < 0:
        return f"was ended by signal {-returncode}"
    return f"ended with exit status {returncode}"


def _text(output: bytes, name: str) -> str:
    try:
        text = output.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise SecretError(f"what the command {name!r} printed is not UTF-8") from None
    if not text:
        raise SecretError(f"the command {name!r} printed nothing", _SILENT_HINT)
    return text


log = structlog.get_logger()

_HEADER: TypeAdapter[str] = TypeAdapter(Header)


def header_renewals(manifest: Manifest) -> Mapping[str, HeaderRenewal]:
    """By upstream, of those that have such headers."""
    found: dict[str, dict[str, Template]] = {}
    for path, template in manifest.templates.items():
        match path:
            case ("upstreams", upstream, "headers", header):
                found.setdefault(str(upstream), {})[str(header)] = template
    return {name: partial(_renewed, manifest, name, templates) for name, templates in found.items()}


async def _renewed(
    manifest: Manifest, upstream: str, templates: Mapping[str, Template]
) -> tuple[Mapping[str, str], Collection[str]] | None:
    references = {reference for template in templates.values() for reference in template.references}
    fetched = await anyio.to_thread.run_sync(
        fetch_secrets, references, manifest.folder, abandon_on_cancel=True
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
            "credentials_not_renewed", upstream=upstream, reason="they are not fit for an HTTP header"
        )
        return None
    return headers, tuple(secrets.values())
