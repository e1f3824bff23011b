"""The system's keyring, through the optional package `keyring`. It may block until its owner unlocks it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from manifests.references import SecretError

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend


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
            "the keyring cannot be used: the package keyring is not installed",
            "In the clone, reinstall the portal with this extra: `pip install '.[keyring]'`.",
        ) from None
    try:
        yield keyring.get_keyring()
    except KeyringError as error:
        raise SecretError(f"the system has no usable keyring ({type(error).__name__})") from None
    # Each backend has its own errors, and their messages may contain the secret.
    except Exception as error:  # noqa: BLE001
        raise SecretError(f"the system's keyring failed ({type(error).__name__})") from None
