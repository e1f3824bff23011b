"""Several addresses of one host: a dead one costs a quarter of a second and not the request (RFC 8305)."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from typing import Final, TypeAlias

import anyio
import httpcore2

from manifests.hosts import Address

Connect: TypeAlias = Callable[[Address], Awaitable[httpcore2.AsyncNetworkStream]]

HEAD_START_SECONDS: Final = 0.25
"""After which the next address is tried as well."""


def in_turns(addresses: Sequence[Address]) -> list[Address]:
    """Both families by turns, beginning with that of the first, so that one that leads nowhere hides no other."""
    first = [each for each in addresses if each.version == addresses[0].version]
    others = [each for each in addresses if each.version != addresses[0].version]
    return [each for pair in zip_longest(first, others) for each in pair if each is not None]


async def first_connected(addresses: Sequence[Address], connect: Connect) -> httpcore2.AsyncNetworkStream:
    """The first connection to any of at least one address; the others are given up.

    Raises:
        httpcore2.ConnectError, httpcore2.ConnectTimeout: There is none; what the last that failed says.
    """
    race = _Race(connect)
    try:
        async with anyio.create_task_group() as tasks:
            for address in addresses:
                ended = anyio.Event()
                tasks.start_soon(race.run, address, ended, tasks.cancel_scope)
                with anyio.move_on_after(HEAD_START_SECONDS):
                    await ended.wait()
    except BaseException:
        if race.won:
            await race.won.aclose()
        raise
    if race.won is None:
        raise race.failures[-1]
    return race.won


class _Race:
    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self.won: httpcore2.AsyncNetworkStream | None = None
        self.failures: list[httpcore2.ConnectError | httpcore2.ConnectTimeout] = []

    async def run(self, address: Address, ended: anyio.Event, others: anyio.CancelScope) -> None:
        try:
            stream = await self._connect(address)
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            self.failures.append(error)
        else:
            if self.won:
                await stream.aclose()
                return
            self.won = stream
            others.cancel()
        finally:
            ended.set()
