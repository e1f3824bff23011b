"""What keeps the portal from serving, which is the operator's to mend; and what a script is told of a refused call.

PortalError
├── OpenBindError     an address beyond loopback was asked for, and no token is set
├── BindError         the address cannot be listened on
└── AuditError        the audit log cannot be written to

RuleError             data, not raised: a rule of the manifest refuses a call
"""

from dataclasses import dataclass

from manifests.decision import Decision
from sandbox_runtime.calls import CallError

_WHY = {"not_granted": "is not granted to scripts", "quarantined": "is quarantined"}


class PortalError(Exception):
    """Base of all; the message says what to do."""


class OpenBindError(PortalError):
    """An address beyond loopback was asked for, and no `server.token` is set."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"refusing to listen on {host!r} without a token: whoever reaches this address could run scripts. "
            'Set server.token in portal.yaml, server: {token: "${MCP_CODE_PORTAL_TOKEN}"}, '
            "or listen on 127.0.0.1."
        )


class BindError(PortalError):
    """The address cannot be listened on: the port is taken, or the host is not ours."""


class AuditError(PortalError):
    """The audit log cannot be written to, or is none."""


@dataclass(frozen=True, slots=True)
class RuleError(CallError):
    """`rule` and `where` it stands are in the manifest's words: nothing of the call is in them."""

    rule: str = ""
    where: str = ""


def refused(qualified: str, decision: Decision, code: str | None = None) -> RuleError:
    """The rule, where it stands, and what to write for another answer; `code` if it is not the decision's own."""
    code = code or decision.code
    why = _WHY.get(code, "was not called")
    hint = f"{decision.grant} The rule is at {decision.where}.".strip()
    message = f"{qualified} {why}: {decision.reason}"
    return RuleError(code, message, hint, rule=decision.rule, where=decision.where)


SMALLEST_MANIFEST = (
    "The smallest portal.yaml that helps: "
    'upstreams: {time: {command: uvx, args: ["mcp-server-time"]}} (uvx comes with uv)'
)

NO_UPSTREAMS = (
    f"no upstreams are configured, so there are no functions yet. {SMALLEST_MANIFEST} — pass it with --config, "
    "$MCP_CODE_PORTAL_CONFIG or as ./portal.yaml. execute_code runs plain Python meanwhile."
)
