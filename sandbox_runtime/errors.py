"""What can go wrong with the sandbox itself; a script's own mistakes are data in its result.

SandboxError
  ComponentError          the guest component is missing, or does not compile: an installation's fault
  BakedComponentError     the component that the manifest names cannot be used: the operator's to mend
  BakeError               packages cannot be baked into a component: the operator's to mend
    BakeToolsError        what baking needs is not installed
  WorkerStartError        no worker process comes up: the machine's fault
  PlatformError           this system is not supported
  WorkspaceError          the folder that a manifest grants cannot be used: the operator's to mend
"""


class SandboxError(Exception):
    """Base of everything here; `hint` says what an operator can do."""

    hint = ""


class ComponentError(SandboxError):
    """The guest component is missing, or does not compile."""

    hint = "Reinstall mcp-code-portal; in a source tree, run `python -m sandbox_runtime.build_guest`."


class BakedComponentError(SandboxError):
    """The component that the manifest names is missing, was not baked, or was baked by another version."""

    hint = "The manifest names it in server.component."


class BakeError(SandboxError):
    """Packages cannot be baked into a component; the message names them and says why."""


class BakeToolsError(BakeError):
    """What baking needs is not installed."""

    hint = "Install mcp-code-portal with its extra: uv tool install 'mcp-code-portal[bake]', or the same with pipx."


class WorkerStartError(SandboxError):
    """No worker process comes up."""

    hint = "Check the memory and process limits of this machine, and that wasmtime supports its CPU."


class PlatformError(SandboxError):
    """This system is not supported."""

    hint = "Use Linux or macOS; on Windows, WSL."


class WorkspaceError(SandboxError):
    """The folder that a manifest grants cannot be used."""

    hint = "See capabilities.files in the manifest; make the folder, or give the portal its rights."
