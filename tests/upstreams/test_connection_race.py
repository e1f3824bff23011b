"""A host with several addresses, of which some lead nowhere."""

from ipaddress import ip_address

import anyio
import httpcore2
import pytest

from manifests.hosts import Address
from upstreams.oauth.connection_race import first_connected, in_turns

pytestmark = pytest.mark.anyio

DEAD, REFUSING, ALIVE, ALSO_ALIVE = map(ip_address, ("2600::1", "2600::2", "192.0.2.1", "192.0.2.2"))


class Stream(httpcore2.AsyncNetworkStream):
    def __init__(self) -> None:
        self.is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True


async def connect(address: Address) -> Stream:
    if address == DEAD:
        await anyio.sleep_forever()
    if address == REFUSING:
        raise httpcore2.ConnectError("refused")
    return Stream()


@pytest.mark.parametrize(
    "addresses", [[ALIVE], [REFUSING, ALIVE], [DEAD, DEAD, REFUSING, ALIVE], [ALIVE, DEAD]]
)
async def test_address_that_answers_is_had_whatever_the_others_do(addresses: list[Address]) -> None:
    with anyio.fail_after(20):
        stream = await first_connected(addresses, connect)
    assert isinstance(stream, Stream) and not stream.is_closed


async def test_nothing_is_had_where_all_refuse() -> None:
    with pytest.raises(httpcore2.ConnectError):
        await first_connected([REFUSING, REFUSING], connect)


async def test_of_two_that_answer_at_once_one_is_closed() -> None:
    both, streams = anyio.Event(), [Stream(), Stream()]

    async def connect(address: Address) -> Stream:
        if address == ALSO_ALIVE:
            both.set()
            return streams[1]
        with anyio.CancelScope(shield=True):
            await both.wait()
        return streams[0]

    with anyio.fail_after(20):
        assert await first_connected([ALIVE, ALSO_ALIVE], connect) in streams
    assert sorted(each.is_closed for each in streams) == [False, True]


async def test_connection_is_closed_where_nobody_waits_for_it_any_more() -> None:
    stream = Stream()
    with anyio.CancelScope() as scope:

        async def connect(address: Address) -> Stream:
            scope.cancel()
            return stream

        await first_connected([ALIVE], connect)
    assert scope.cancelled_caught and stream.is_closed


def test_families_take_turns_in_the_order_of_the_system() -> None:
    assert in_turns([DEAD, REFUSING, ALIVE]) == [DEAD, ALIVE, REFUSING]
    assert in_turns([ALIVE, ALSO_ALIVE, DEAD]) == [ALIVE, DEAD, ALSO_ALIVE]
    assert in_turns([ALIVE]) == [ALIVE]
