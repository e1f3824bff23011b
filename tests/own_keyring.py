"""A keyring of the tests, for the real library."""

from keyring.backend import KeyringBackend


class OwnKeyring(KeyringBackend):
    """A keyring that lasts as long as a test."""

    priority = 1  # type: ignore[assignment]  # the library declares a property that a class may replace

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]
