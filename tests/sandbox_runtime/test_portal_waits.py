"""What a script waits for, besides the functions of upstreams, are calls that the host answers."""

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.running import EchoPort, Runner

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("call", "function", "arguments"),
    [
        ("sleep()", "sleep", {"seconds": 0}),
        ("sleep(1, minutes=1, hours=0.5, days=2)", "sleep", {"seconds": 174_661}),
        ("event('deployed', timeout=0.5)", "event", {"name": "deployed", "timeout": 0.5}),
        ("event_url('deployed')", "event_url", {"name": "deployed"}),
        ("approve('really?')", "approve", {"question": "really?"}),
        ("recall('kept_1')", "recall", {"handle": "kept_1"}),
        (
            "search_text('kept_1', 'error', limit=3)",
            "search_text",
            {"handle": "kept_1", "text": "error", "context": 200, "limit": 3},
        ),
    ],
)
async def test_each_is_a_call_of_the_host(
    run: Runner, call: str, function: str, arguments: dict[str, Json]
) -> None:
    port = EchoPort()
    assert await run.value(f"await portal.{call}", port=port) == arguments
    assert [(each.function, each.arguments) for each in port.calls] == [(f"portal.{function}", arguments)]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("sleep('5')", "TypeError"),
        ("sleep(-1)", "ValueError"),
        ("sleep(float('nan'))", "ValueError"),
        ("sleep(10 ** 400)", "ValueError"),
        ("event('x', timeout='1')", "TypeError"),
        ("event('x', timeout=-1)", "ValueError"),
    ],
)
async def test_time_that_cannot_be_waited_is_the_script_s_mistake(run: Runner, call: str, kind: str) -> None:
    port = EchoPort()
    script = (
        f"try:\n    await portal.{call}\nexcept (TypeError, ValueError) as e:\n    x = type(e).__name__\nx"
    )
    assert await run.value(script, port=port) == kind
    assert port.calls == []


@pytest.mark.parametrize("use", ["if asked: x = 1", "x = not asked", "x = asked and 1", "assert asked"])
async def test_approval_that_was_not_awaited_asks_all_the_same(run: Runner, use: str) -> None:
    port = EchoPort()
    result = await run(f"asked = portal.approve('really?')\n{use}\n1", port=port)
    assert (result.error, [call.function for call in port.calls]) == (None, ["portal.approve"])


@pytest.mark.parametrize("hidden", ["getattr(portal, 'approve')", "[portal.approve][0]"])
async def test_approval_that_nothing_awaits_is_no_yes(run: Runner, hidden: str) -> None:
    error = await run.error(f"if {hidden}('really?'): x = 1")
    assert "await portal.approve(...)" in error.message


async def test_wait_that_was_not_awaited_is_waited_for(run: Runner) -> None:
    port = EchoPort()
    result = await run("for i in range(2):\n    portal.sleep(hours=1)\n1", port=port)
    assert (result.value, len(port.calls)) == (1, 2)
