"""What can go wrong with the sandbox itself; a script's own mistakes are data in its result."""


class SandboxError(Exception):
    """Base of everything here; `hint` says what an operator can do."""

    hint = ""


class ComponentError(SandboxError):
    """The guest component is missing, or does not compile: an installation's fault."""

    hint = "Reinstall mcp-code-portal; in a source tree, run `python -m sandbox_runtime.build_guest`."


class CacheError(SandboxError):
    """Nowhere is room for the compiled component: the machine's fault."""

    hint = "Set MCP_CODE_PORTAL_CACHE to a private folder on another disk."


class BakedComponentError(SandboxError):
    """The component that the manifest names is missing, was not baked, or was baked by another version."""

    hint = "The manifest names it in server.component."


class BakeError(SandboxError):
    """Packages cannot be baked into a component; the message names them and says why."""


class BakeToolsError(BakeError):
    """What baking needs is not installed."""

    hint = "In the clone, install the portal as you did, with this extra: `pip install '.[bake]'`."


class WorkerStartError(SandboxError):
    """No worker process comes up: the machine's fault."""

    hint = (
        "Check the memory and process limits of this machine, and that wasmtime supports its CPU. A file that was "
        "damaged in the cache is made again if you delete the folder (~/.cache/mcp-code-portal)."
    )


class WorkspaceError(SandboxError):
    """The folder that a manifest grants cannot be used: the operator's to mend."""

    hint = "See capabilities.files in the manifest; make the folder, or give the portal its rights."


class RecordError(SandboxError):
    """A record cannot be replayed; the message says why."""

    hint = "Replay it with the version of mcp-code-portal that made it; `resume` goes on where one ends."


class DivergenceError(SandboxError):
    """A run that was replayed did something else than its record says.

    `index` counts the record's events from 0; `expected` and `got` say what is recorded there and what happened.
    """

    hint = "The script, its settings or the record was changed after the run."

    def __init__(self, index: int, expected: str, got: str) -> None:
        super().__init__(f"event {index:,} is another than recorded; expected {expected}; got {got}")
        self.index = index
        self.expected = expected
        self.got = got


class ReplayInterruptedError(SandboxError):
    """A replay did not come to its end; the message says why."""
