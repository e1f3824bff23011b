"""Errors that prevent the portal from serving, which the operator has to fix; and kinds of errors of calls.

PortalError
├── OpenBindError     the address is not loopback, and no token is set
├── AuditError        the audit log cannot be written to
├── TelemetryError    the packages for telemetry are not installed
└── RunsError         a request of a person or a script about a run is refused

RuleError             data, not raised: a rule of the manifest refuses a call
UnreachableError      data, not raised: the upstream of a call is down or does not answer
SignInError           a token is refused
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from manifests.errors import with_extra
from manifests.kernels import KernelName
from sandbox_runtime.call_port import CallError

if TYPE_CHECKING:  # the command `status` has no time to import it
    from manifests.decision import Decision

ASK_OPERATOR = "Only the operator can change that: ask them."
"""A model does not learn how: it may follow an attacker's orders. `explain`, `check` and the log say how."""

_WHY = {"not_granted": "is not granted to scripts", "quarantined": "is quarantined"}


class PortalError(Exception):
    """The base class; the message says what to do."""


class OpenBindError(PortalError):
    """The address is not loopback, and callers need no token."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"refusing to listen on {host!r} without a token: anyone who can reach it could run scripts. "
            'Set server.token in portal.yaml, server: {token: "${MCP_CODE_PORTAL_TOKEN}"}, or server.auth, '
            "or listen on 127.0.0.1."
        )


class AuditError(PortalError):
    """The audit log cannot be written to, or is not an audit log."""


class TelemetryError(PortalError):
    """The packages for the manifest's `telemetry` are not installed."""

    def __init__(self, where: str, package: str) -> None:
        super().__init__(
            f"telemetry ({where}) needs packages that are not installed, among them {package}. "
            + with_extra("telemetry")
        )


class RunsError(PortalError):
    """A request of a person or a script about a run is refused. Nothing was changed. `code` is stable."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.call_error = CallError(code, message, hint)


def refuse_kernel(kernel: KernelName, switched_on: Collection[KernelName]) -> None:
    """Raises RunsError: the kernel is not on."""
    if kernel not in switched_on:
        message = f"the kernel {kernel} is not on here; those that are: {', '.join(switched_on)}"
        hint = f"Use one of those. The operator can switch it on: server: {{kernels: {{{kernel}: true}}}}."
        raise RunsError("kernel_off", message, hint)


@dataclass(frozen=True, slots=True)
class RuleError(CallError):
    """A refusal by a rule. `rule` and `where` come from the manifest only, never from the call."""

    rule: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class UnreachableError(CallError):
    """The upstream is down or does not answer. A fallback may answer instead."""


def refused(qualified: str, decision: "Decision") -> RuleError:
    """The error of a refused call: the rule, and what the script can do. The log says how the operator can grant it."""
    import structlog

    why = _WHY.get(decision.code, "was not called")
    hint = f"{decision.advice} {ASK_OPERATOR}".strip()
    message = f"{qualified} {why}: {decision.reason}"
    told = {"rule": decision.rule, "where": decision.where}
    log = structlog.get_logger()
    log.info("call_refused", function=qualified, code=decision.code, **told, fix=decision.fix)
    return RuleError(decision.code, message, hint, **told)


def approval_required(qualified: str, tool: "Decision") -> RuleError:
    """The error of a call that needs a person's approval, if no one was asked."""
    message = f"{qualified} was not called: it asks for approval by rule {tool.asks}"
    hint = "Only a person can approve it. Ask the user how to go on."
    return RuleError("approval_required", message, hint, rule=tool.asks, where=tool.asks_where)


SMALLEST_MANIFEST = (
    'A minimal portal.yaml: upstreams: {time: {command: uvx, args: ["mcp-server-time"]}} (uvx comes with uv)'
)

NO_UPSTREAMS = (
    "no upstreams are configured, so there are no functions. The operator can add some; `mcp-code-portal check` says "
    "how. execute_code still runs plain scripts."
)


class SignInError(Exception):
    """A token is refused. `code` is one of RFC 6750, or `temporarily_unavailable`. The message contains no secret.

    `reason` tells operators why the identity provider cannot be asked.
    """

    def __init__(self, status: int, code: str, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.reason = status, code, reason
