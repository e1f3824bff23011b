"""Why a fetch gave no answer; for the script, as data."""

from typing import Literal, TypeAlias

from sandbox_runtime.calls import CallError

FetchState: TypeAlias = Literal["not_started", "done", "failed", "refused", "unknown"]
"""As a ledger has them: refused was not sent, unknown was sent and may have had its effect."""


class FetchError(Exception):
    """`state` is what the ledger says of the call."""

    def __init__(self, code: str, message: str, hint: str = "", state: FetchState = "refused") -> None:
        super().__init__(message)
        self.state = state
        self.told = CallError(code, message, hint)

    def but(self, state: FetchState) -> "FetchError":
        """The same error of a call that has gone further."""
        return FetchError(self.told.code, self.told.message, self.told.hint, state)
