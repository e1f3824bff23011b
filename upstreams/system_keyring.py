"""The system's keyring, through the package `keyring`, which is an extra. It may keep waiting for its owner."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from manifests.references import SecretError

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend


def keyring_password(service: str, user: str) -> str | None:
    """What the keyring holds; None if it holds no such thing. Raises SecretError: there is none that can be asked."""
    with _keyring() as keyring:
        return keyring.get_password(service, user)


def store_in_keyring(service: str, user: str, password: str) -> None:
    """Put it there, in place of what was there before. Raises SecretError: as above."""
    with _keyring() as keyring:
        keyring.set_password(service, user, password)


def delete_from_keyring(service: str, user: str) -> None:
    """Have it hold nothing there. Raises SecretError: as above."""
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
            "the keyring cannot be asked: the package keyring is not installed",
            "In the clone, install the portal as you did, with this extra: `pip install '.[keyring]'`.",
        ) from None
    try:
        yield keyring.get_keyring()
    except KeyringError as error:
        raise SecretError(f"the system has no keyring that can be asked ({type(error).__name__})") from None
    # Each system has its own, each with its own errors, and what they say may hold what was asked for.
    except Exception as error:  # noqa: BLE001
        raise SecretError(f"the system's keyring failed ({type(error).__name__})") from None
