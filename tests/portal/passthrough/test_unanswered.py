"""A person or a model who takes longer than a call may is told as that, and is no failure of the upstream."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.portal.passthrough.peers import UPSTREAMS, chatty_upstreams, client_of
from tests.portal.peers import states
from upstreams.circuit import FAILURES_IN_A_ROW

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

CALLS = FAILURES_IN_A_ROW + 1
# Questions arrive in that time, also on a machine that is busy.
CALL_SECONDS = 2.0


class Absent:
    """Hears every question, and answers none."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, context: Any, params: Any) -> Any:
        self.asked += 1
        await anyio.sleep_forever()


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("tool", ["ask", "sample"])
async def test_calls_whose_questions_nobody_answers_leave_the_upstream_to_others(
    tmp_path: Path, upstream: str, tool: str
) -> None:
    absent = Absent()
    options = {"elicitation_callback": absent, "sampling_callback": absent}
    async with chatty_upstreams() as upstreams:
        entry = upstreams[upstream] | {"call_seconds": CALL_SECONDS, "sampling": {"max_tokens": 5_000}}
        async with client_of(tmp_path, {upstream: entry}, "http", "legacy", options) as ear:
            answer = await ear.run(
                f"calls = [{upstream}.{tool}() for _ in range({CALLS})]\n"
                "failures = await asyncio.gather(*calls, return_exceptions=True)\n"
                f"[*(failure.code for failure in failures), await {upstream}.count()]"
            )
    assert answer["result"] == [*["question_unanswered"] * CALLS, "counted"]
    function = f"{upstream}.{tool}"
    assert states(answer) == [*[(function, "unknown")] * CALLS, (f"{upstream}.count", "done")]
    assert absent.asked == CALLS, "each call was made once"


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_call_that_asks_nothing_and_is_not_answered_is_the_upstreams_failure(
    tmp_path: Path, upstream: str
) -> None:
    async with chatty_upstreams() as upstreams:
        entry = upstreams[upstream] | {"call_seconds": 0.3}
        async with client_of(tmp_path, {upstream: entry}, "http", "legacy") as ear:
            answer = await ear.run(f"await {upstream}.hang()")
    assert answer["error"]["code"] == "upstream_timeout"
    assert "0.3 s" in answer["error"]["message"]


@pytest.mark.parametrize("upstream", [name for name in UPSTREAMS if name.endswith("legacy")])
async def test_calls_that_hang_beside_one_that_asks_are_the_upstreams_failure(
    tmp_path: Path, upstream: str
) -> None:
    async with chatty_upstreams() as upstreams:
        entry = upstreams[upstream] | {"call_seconds": CALL_SECONDS}
        options = {"elicitation_callback": Absent()}
        async with client_of(tmp_path, {upstream: entry}, "http", "legacy", options) as ear:
            answer = await ear.run(
                f"calls = [*({upstream}.hang() for _ in range({FAILURES_IN_A_ROW})), {upstream}.ask()]\n"
                "failures = await asyncio.gather(*calls, return_exceptions=True)\n"
                f"failures += await asyncio.gather({upstream}.count(), return_exceptions=True)\n"
                "[failure.code for failure in failures]"
            )
    assert isinstance(answer["result"], list)
    *codes, last = answer["result"]
    assert sorted(codes) == ["question_unanswered", *["upstream_timeout"] * FAILURES_IN_A_ROW]
    assert last == "circuit_open"


@pytest.mark.parametrize("upstream", [name for name in UPSTREAMS if name.endswith("legacy")])
async def test_call_that_waits_for_a_person_is_told_so_also_if_the_script_gave_up_another(
    tmp_path: Path, upstream: str
) -> None:
    code = f"""
asking = asyncio.create_task({upstream}.ask(beside=True))
hanging = asyncio.create_task({upstream}.hang())
await {upstream}.asks()
hanging.cancel()
failures = await asyncio.gather(asking, return_exceptions=True)
[failure.code for failure in failures]
"""
    async with chatty_upstreams() as upstreams:
        entry = upstreams[upstream] | {"call_seconds": CALL_SECONDS}
        options = {"elicitation_callback": Absent()}
        async with client_of(tmp_path, {upstream: entry}, "http", "legacy", options) as ear:
            answer = await ear.run(code)
    assert answer["result"] == ["question_unanswered"]
