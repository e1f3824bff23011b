"""What an upstream refuses because of a session or of credentials: those of the connection, or of one call alone."""

from typing import Final

from upstreams.errors import (
    UpstreamDownError,
    UpstreamError,
    UpstreamRefusedError,
    UpstreamSessionError,
    UpstreamStillUnauthorizedError,
    UpstreamUnauthorizedError,
)

YOUNG_SECONDS: Final = 10.0
"""An upstream that goes on refusing a call is connected anew for it at most this often."""

PROBE_SECONDS: Final = 5.0
"""How long it may take to show that it takes other requests."""


def is_refusal(failure: UpstreamError) -> bool:
    """Whether it did not take the session, or credentials, or there are no others to be had."""
    return isinstance(failure, UpstreamSessionError | UpstreamUnauthorizedError | UpstreamDownError)


def was_renewed(failure: UpstreamError) -> bool:
    """Whether what it refuses was new."""
    return isinstance(failure, UpstreamStillUnauthorizedError)


def of_call(failure: UpstreamError) -> UpstreamError:
    """The same as an error of its call alone: the upstream takes other requests."""
    if isinstance(failure, UpstreamUnauthorizedError):
        return UpstreamStillUnauthorizedError(f"{failure}; it takes the same credentials for other requests")
    if isinstance(failure, UpstreamSessionError):
        return UpstreamRefusedError(f"refuses it as if of an unknown session, which it knows ({failure})")
    return failure
