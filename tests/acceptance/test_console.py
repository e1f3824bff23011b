"""The console in a real browser, against a real portal that a client has started: what people do with it every day."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.acceptance.browser import Chromium, Tab, form_of
from tests.acceptance.console_portal import CLIENT, READ, REFUND, REFUNDS, SECONDS, Company, Desk
from tests.acceptance.model import Json

pytestmark = [pytest.mark.anyio, pytest.mark.servers]

DENIED = f"try:\n    {REFUND}\nexcept ToolError as error:\n    said = str(error)\nsaid"
SHOWN = "<img src=x onerror=alert(1)></pre></script><script>alert(2)</script>"
HOSTILE = f"{SHOWN}\u202e{{7*7}}'\""


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Desk]:
    rules = {"tools": {"ask": ["billing.refund", "notes.keep"]}}
    names = ("tickets", "billing", "notes")
    async with Company(tmp_path_factory.mktemp("company"), *names, capabilities=rules).desk() as desk:
        yield desk


async def asking(desk: Desk, code: str, tab: Tab) -> str:
    """The id of a new run that has come to wait for a person, which the page of the run shows in the tab."""
    run = await desk.begin(code, "waiting")
    await tab.open(f"{desk.base}/runs/{run}")
    await tab.shows(".facts .state.person")
    return run


async def test_status_names_the_client_that_started_a_portal_over_stdio(desk: Desk) -> None:
    (portal,) = await desk.company.portals()
    assert (portal["transport"], portal["client"]) == ("stdio", f"{CLIENT.name} {CLIENT.version}")
    assert {each["status"] for each in portal["upstreams"]} == {"ready"}


async def test_ticket_opens_the_console_once_and_leaves_the_address(desk: Desk, chromium: Chromium) -> None:
    with desk.company.console("--decide") as console:
        tab = await chromium.tab(console.origin, {})
        await tab.page.goto(console.entrance)
        await tab.shows("h1", "Overview")
        assert "ticket" not in tab.page.url
        with console.http() as other:
            used, wrong = other.get(console.entrance), other.get(console.entrance[:-1])
            assert (used.status_code, wrong.status_code) == (403, 403)
            assert other.get(f"{desk.base}/runs").status_code == 401
        await tab.open(f"{desk.base}/runs")  # its own session goes on


async def test_run_that_only_read_appears_without_a_reload(desk: Desk, chromium: Chromium) -> None:
    tab = await desk.tab(chromium, "/runs")
    await tab.shows("#live", "live")
    assert await desk.model.result_of(f"# How many wait?\n{READ}") == 3
    await tab.click("#list tr.row a", "How many wait?")
    await tab.shows("a.call", "tickets.list_tickets")
    await tab.shows("code", "runs.trail: full")


async def test_call_is_approved_with_a_changed_argument_while_another_tab_follows(
    desk: Desk, chromium: Chromium
) -> None:
    follower = await desk.tab(chromium)
    run = await asking(desk, REFUND, follower)
    tab, form = await desk.tab(chromium, "/approvals"), form_of(run, 1)
    await tab.change(form, "amount", "much")
    await tab.shows(f"{form} .diff", "not a number")
    await tab.page.locator(form).get_by_role("textbox", name="amount").fill("12.5")
    await tab.shows(f"{form} .diff", "12.5")
    await tab.click(f"{form} button.changed")
    await tab.shows(form, count=0)
    await follower.shows(".facts .state.ok")
    await follower.shows("#call", "12.5")
    assert desk.company.sent[-1] == (
        "billing.refund",
        {"charge": "ch_81f9", "amount": 12.5, "reason": "twice"},
    )


async def test_form_that_is_edited_keeps_what_was_written_when_something_changes(
    desk: Desk, chromium: Chromium
) -> None:
    tab = await desk.tab(chromium)
    run = await asking(desk, REFUND, tab)
    await tab.open(f"{desk.base}/approvals")
    await tab.shows("#live", "live")
    asked, may_go = anyio.Event(), anyio.Event()

    async def late(route: Json) -> None:
        asked.set()
        await may_go.wait()
        await route.continue_()

    await tab.page.route("**/approvals?part=inbox", late)
    other, form = await desk.begin(REFUND), form_of(run, 1)  # of which the page is told
    with anyio.fail_after(SECONDS):
        await asked.wait()
    await tab.change(form, "amount", "12.5")
    async with tab.page.expect_response("**/approvals?part=inbox"):
        may_go.set()
    await tab.shows(f"{form} .diff", "12.5")
    await tab.shows(f"{form}.dirty.editing")
    assert await tab.page.locator(form).get_by_role("textbox", name="amount").input_value() == "12.5"
    await tab.click(f"{form} details.edit summary")
    await tab.shows(form_of(other, 1))  # now that no one writes
    for each in (run, other):
        await tab.open(f"{desk.base}/runs/{each}")
        await tab.cancel()


async def test_unchecked_call_of_several_still_waits(desk: Desk, chromium: Chromium) -> None:
    tab = await desk.tab(chromium)
    run, before = await asking(desk, REFUNDS, tab), refunds(desk)
    await tab.open(f"{desk.base}/approvals")
    await tab.page.locator(f"[id='{run[:12]}-2'] [name=seq]").uncheck()
    await tab.click(f"form[action$='{run}/answers'] button", "Approve 2 calls")
    await tab.shows(form_of(run, 1), count=0)
    await desk.company.until_sent("billing.refund", len(before) + 2)
    assert {*refunds(desk)[len(before) :]} == {"ch_0", "ch_2"}
    await tab.click(f"{form_of(run, 2)} button.as-is")
    await tab.shows(form_of(run, 2), count=0)
    await desk.until(run, "ok")
    assert refunds(desk)[len(before) + 2 :] == ["ch_1"]


def refunds(desk: Desk) -> list[str]:
    """The charges that were refunded."""
    return [arguments["charge"] for function, arguments in desk.company.sent if function == "billing.refund"]


async def test_reason_of_a_denial_reaches_the_script(desk: Desk, chromium: Chromium) -> None:
    tab = await desk.tab(chromium)
    run, before = await asking(desk, DENIED, tab), desk.company.sent
    await tab.open(f"{desk.base}/approvals")
    await tab.deny(form_of(run, 1), "paid already")
    await desk.until(run, "ok")
    assert "paid already" in (await desk.answer(run))["result"] and desk.company.sent == before


async def test_decision_without_an_answer_is_told_until_it_is_tried_again(
    desk: Desk, chromium: Chromium
) -> None:
    tab = await desk.tab(chromium)
    chromium.tabs.remove(tab)  # what fails here is on its console
    run = await asking(desk, REFUND, tab)
    await tab.open(f"{desk.base}/approvals")
    lost = ("#said [role=alert]", "try again")
    for end in (lambda route: route.fulfill(status=503), lambda route: route.abort()):
        await tab.page.route("**/answers/1", end)
        async with tab.page.expect_request("**/answers/1"):
            await tab.click(f"{form_of(run, 1)} button.as-is")
        await tab.shows(*lost, count=1)
        await tab.shows(form_of(run, 1), count=1)
    await tab.page.unroute("**/answers/1")
    await tab.click(f"{form_of(run, 1)} button.as-is")
    await tab.shows(form_of(run, 1), count=0)
    await tab.shows(*lost, count=0)
    await tab.page.context.close()
    await desk.until(run, "ok")


async def test_everything_is_read_and_decided_without_scripts(desk: Desk, chromium: Chromium) -> None:
    tab = await desk.tab(chromium, java_script_enabled=False)
    for heading in ("Approvals", "Runs", "Overview"):
        await tab.click("nav a", heading)
        await tab.shows("h1", heading)
    approved, denied, _ = [await asking(desk, code, tab) for code in (REFUND, DENIED, REFUND)]
    await tab.cancel()
    await tab.open(f"{desk.base}/runs/{approved}")
    await tab.click("a.call", "billing.refund")
    await tab.change(form_of(approved, 1), "amount", "7")
    await tab.click(f"{form_of(approved, 1)} button.changed")
    await tab.shows(form_of(approved, 1), count=0)
    await tab.click("nav a", "Approvals")
    await tab.deny(form_of(denied, 1), "no")
    for run in (approved, denied):
        await desk.until(run, "ok")
    assert desk.company.sent[-1][1]["amount"] == 7


async def test_hostile_texts_are_shown_as_texts(desk: Desk, chromium: Chromium) -> None:
    code = f"# {HOSTILE}\nprint({HOSTILE!r})\nheard = await notes.echo(text={HOSTILE!r})\n"
    tab = await desk.tab(chromium)
    run = await asking(desk, f"{code}await notes.keep(text=heard)\nawait notes.fail(text=heard)", tab)
    for path in ("/", "/runs", "/approvals", f"/runs/{run}?call=1", f"/runs/{run}?call=2"):
        policy = (await tab.open(desk.base + path)).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        await tab.shows("main", SHOWN)
        await tab.shows("img[onerror], script:not([src])", count=0)
        assert "\u202e" not in await tab.page.content()
    await tab.click(f"{form_of(run, 2)} button.as-is")
    await desk.until(run, "error")
    await tab.open(f"{desk.base}/runs/{run}?call=3")
    await tab.shows("#call .flash", SHOWN)
    await tab.shows("img[onerror], script:not([src])", count=0)


async def test_run_of_a_killed_portal_is_found_again_and_goes_on(tmp_path: Path, chromium: Chromium) -> None:
    company = Company(tmp_path, "billing")
    async with company.desk() as desk:
        with company.held():
            run = await desk.begin(f"# Refund\n{REFUND}")
            await company.until_sent("billing.refund")
            await company.kill()
        tab = await chromium.tab(desk.console.origin, desk.console.cookies)
        await tab.open("/ui/")
        await tab.shows("a.which", count=1)
        await tab.click("a.which.ended")
        await tab.click("nav a", "Runs")
        await tab.click("tr.row a", "Refund")
        await tab.shows(".facts .state", "waits for a portal")
        await tab.shows("#call .state.unknown")
        await tab.shows("#call", "ch_81f9")
        assert await company.portals() == []
        async with company.portal():
            await tab.open("/ui/")
            await tab.click("a.which:not(.ended)")
            await tab.click("tr.row a", "Refund")
            await tab.shows(".facts .state", "failed")
            await tab.shows("#call .state.unknown")
            await tab.shows(".legend", "the portal ended")
            assert run in tab.page.url
            await tab.page.close()  # before its stream ends
    assert [function for function, _ in company.sent] == ["billing.refund"]
