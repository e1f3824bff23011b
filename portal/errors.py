"""What keeps the portal from serving. All of it is the operator's to mend, and its text says how.

PortalError
├── OpenBindError     an address beyond loopback was asked for, and no token is set
├── BindError         the address cannot be listened on
└── AuditError        the audit log cannot be written to
"""


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
