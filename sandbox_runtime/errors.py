"""What can go wrong with the sandbox itself; a script's own mistakes are data in its result.

SandboxError
  ComponentError          the guest component is missing, or does not compile: an installation's fault
  WorkerStartError        no worker process comes up: the machine's fault
  PlatformError           this system is not supported
"""


class SandboxError(Exception):
    """Base of everything here; `hint` says what an operator can do."""

    hint = ""


class ComponentError(SandboxError):
    """The guest component is missing, or does not compile."""

    hint = "Reinstall mcp-code-portal; in a source tree, run `python -m sandbox_runtime.build_guest`."


class WorkerStartError(SandboxError):
    """No worker process comes up."""

    hint = "Check the memory and process limits of this machine, and that wasmtime supports its CPU."


class PlatformError(SandboxError):
    """This system is not supported."""

    hint = "Use Linux or macOS; on Windows, WSL."
