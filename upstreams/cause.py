"""Why a connection ended, found in whatever was raised."""

from collections.abc import Iterator

import httpx2

from upstreams.errors import UpstreamError
from upstreams.http_status import described_http


def cause_of(error: BaseException) -> BaseException:
    """The error that explains a group of them: one of ours if there is one."""
    leaves = list(_leaves(error))
    return next((leaf for leaf in leaves if isinstance(leaf, UpstreamError)), leaves[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error


def described(error: BaseException) -> str:
    """One line for a human."""
    if isinstance(error, UpstreamError):
        return str(error)
    if isinstance(error, httpx2.HTTPError):
        return described_http(error)
    first_line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}"
