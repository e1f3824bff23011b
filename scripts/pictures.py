"""Makes the pictures of the console: docs/pictures/{overview,approvals,run}-{light,dark}.png."""

import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import anyio

from tests.acceptance.browser import Chromium, chromium
from tests.acceptance.console_portal import Company, Desk

PICTURES = Path(__file__).resolve().parents[1] / "docs/pictures"
SIZE = {"width": 1280, "height": 640}
CACHE = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
MAX_BYTES = 150_000
ASK = ["billing.refund", "tickets.reply", "github.merge_pull_request"]

REFUND = """\
# Refund customers who were charged twice in November
import asyncio

found = await tickets.list_tickets(queue="billing", state="open")
details = await asyncio.gather(*[tickets.get_ticket(id=each["id"]) for each in found])
double = details[0]

charges = await billing.list_charges(customer=double["customer"], month="2026-11")
refund = await billing.refund(
    charge=charges[1]["charge"],
    amount=charges[1]["amount"],
    reason="Charged twice on %s (ticket %d)" % (charges[1]["on"], double["id"]),
)
await tickets.reply(id=double["id"], body="We refunded the second charge of 1,290.00 EUR.", close=True)
refund["amount"]
"""
MERGE = """\
# Merge the pull requests that two people approved
import asyncio

pulls = await github.list_pull_requests(repo="halden/ledger")
ready = [each for each in pulls if each["approvals"] >= 2]
merged = await asyncio.gather(*[
    github.merge_pull_request(repo="halden/ledger", number=each["number"], method="squash")
    for each in ready
])
len(merged)
"""
EVERYDAY = (
    '# Which tickets wait longest?\nfound = await tickets.list_tickets(queue="billing", state="open")\nlen(found)',
    '# Who may leave?\n(await warehouse.query(sql="select * from accounts where churn_risk > 0.3"))[0]',
    '# Charges of November\nlen(await billing.list_charges(customer="cus_4410", month="2026-11"))',
    '# Ticket 7702\n(await tickets.get_ticket(id=7702))["subject"]',
)
FAILS = '# Ticket 9000\n(await tickets.get_ticket(id=9000))["subject"]'


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "halden"
        names = ("tickets", "billing", "warehouse", "github")
        company = Company(folder, *names, delay=0.12, capabilities={"tools": {"ask": ASK}})
        # As somebody has it: no path and no name of this machine is in a picture.
        company.environ |= {"HOME": home, "LOGNAME": "ada", "XDG_CACHE_HOME": CACHE}
        async with chromium() as browser:
            tabs = Chromium(browser)
            async with company.desk() as desk:
                killed = await interrupted(desk, tabs)
            spread(company)
            async with company.desk() as desk:
                await desk.until(killed, "error")
                await asks(desk, tabs)
                for scheme in ("light", "dark"):
                    tab = await desk.tab(tabs, viewport=SIZE, color_scheme=scheme)
                    for name, path in (
                        ("overview", "/"),
                        ("approvals", "/approvals"),
                        ("run", f"/runs/{killed}"),
                    ):
                        await tab.open(desk.base + path)
                        await tab.shows("#live", "live")
                        keep(f"{name}-{scheme}", await tab.page.screenshot(animations="disabled"))
                    await tab.page.context.close()


async def interrupted(desk: Desk, tabs: Chromium) -> str:
    """The id of a run whose portal is killed while a call is under way, which a person approved; after many others."""
    for n in range(36):
        await desk.model.call("execute_code", {"code": EVERYDAY[n % len(EVERYDAY)] if n % 12 else FAILS})
    run = await desk.begin(REFUND, "waiting")
    tab = await desk.tab(tabs, "/approvals")
    await anyio.sleep(3)  # as somebody who reads it first
    with desk.company.held():
        await tab.click("button.as-is")
        await desk.company.until_sent("billing.refund")
        await anyio.sleep(0.4)
        await desk.company.kill()
    await tab.page.context.close()
    return run


def spread(company: Company) -> None:
    """Spread the runs that only read over the last day, as if the portal had run for so long."""
    (store,) = company.stores.glob("*/runs.sqlite")
    with closing(sqlite3.connect(store)) as database, database:
        rows = database.execute("SELECT id FROM trail WHERE is_journaled = 0 ORDER BY began DESC").fetchall()
        earlier = [(600.0 * n * (1 + n % 5) % 80_000, run) for n, (run,) in enumerate(rows)]
        database.executemany("UPDATE trail SET began = began - ? WHERE id = ?", earlier)


async def asks(desk: Desk, tabs: Chromium) -> None:
    """A run whose second question waits, and one that asks about two calls at once."""
    await desk.begin(REFUND, "waiting")
    tab = await desk.tab(tabs, "/approvals")
    await tab.click("button.as-is")
    await tab.shows("form.ask code", "tickets.reply")
    await tab.page.context.close()
    await desk.begin(MERGE, "waiting")


def keep(name: str, picture: bytes) -> None:
    print(f"{name}: {len(picture):,} bytes")
    if len(picture) > MAX_BYTES:
        sys.exit(f"pictures: {name} has more than {MAX_BYTES:,} bytes")
    (PICTURES / f"{name}.png").write_bytes(picture)


if __name__ == "__main__":
    anyio.run(main)
