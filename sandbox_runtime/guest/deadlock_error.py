"""The error of a script that would wait for ever."""


class DeadlockError(RuntimeError):
    """The script waits for something that can never happen."""

    __module__ = "builtins"
