"""The exceptions of our own that a script can see."""


class ToolError(Exception):
    """A call has no value. `str(error)` is what the tool or the portal said, `code` is stable, `hint` helps."""

    __module__ = "portal"

    def __init__(self, message: str = "", code: str = "tool_error", hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class DeadlockError(RuntimeError):
    """The script waits for something that can never happen."""

    __module__ = "builtins"
