"""Errors of the sandbox itself. A script's own errors are data in its result."""

from manifests.errors import with_extra


class SandboxError(Exception):
    """The base class; `hint` says what an operator can do."""

    hint = ""


class ComponentError(SandboxError):
    """The guest component is missing or does not compile: the installation is broken."""

    def __init__(self, message: str, builder: str = "sandbox_runtime.build_guest") -> None:
        super().__init__(message)
        self.hint = f"Reinstall mcp-code-portal. In a source tree, run `python -m {builder}`."


class CacheError(SandboxError):
    """There is no folder for the compiled component."""

    hint = "Set MCP_CODE_PORTAL_CACHE to a private folder on another disk."


class BakedComponentError(SandboxError):
    """The manifest's component is missing, was not baked, or was baked by another version."""

    hint = "The manifest names it in server.component."


class BakeError(SandboxError):
    """Packages cannot be baked into a component; the message names them and the reason."""


class BakeToolsError(BakeError):
    """The tools for baking are not installed."""

    hint = with_extra("bake")


class WorkerStartError(SandboxError):
    """Worker processes do not start on this machine."""

    hint = (
        "Check this machine's memory and limits (ulimit -u and -v), and that wasmtime supports its CPU. If the cache "
        "is damaged, delete it ($MCP_CODE_PORTAL_CACHE or ~/.cache/mcp-code-portal); it is rebuilt."
    )


class WorkspaceError(SandboxError):
    """The granted folder cannot be used; the operator has to fix it."""

    hint = "See capabilities.files in the manifest. Create the folder, or give the portal access to it."


class RecordError(SandboxError):
    """A record cannot be replayed; the message says why."""

    hint = "Replay it with the version of mcp-code-portal that made it. `resume` continues an unfinished run."


class DivergenceError(SandboxError):
    """A replayed run diverged from its record.

    `index` counts the record's events from 0; `expected` is the recorded event, `got` the actual one.
    """

    hint = "The script, its settings or the record changed after the run."

    def __init__(self, index: int, expected: str, got: str) -> None:
        super().__init__(f"event {index:,} differs from the record; expected {expected}; got {got}")
        self.index = index
        self.expected = expected
        self.got = got


class ReplayInterruptedError(SandboxError):
    """A replay did not finish; the message says why. `code` is that of the limit which it exceeded, if it did so."""

    def __init__(self, message: str, code: str = "sandbox_busy") -> None:
        super().__init__(message)
        self.code = code
