"""People who sign in at the upstream of a company, step by step, and who sign out."""

import httpx2

from tests.portal.accounts.peers import Company
from tests.portal.peers import DEADLINE_SECONDS


async def callback_of(own: Company, who: str, link: str) -> str:
    """The last URL of a sign-in that began with the link, which the browser has not visited yet."""
    return (await steps_to(own, who, link, f"{own.url}/oauth/sign-in/callback"))[-1]


async def steps_to(own: Company, who: str, link: str, end: str) -> list[str]:
    """The URLs from the link on to one that begins with `end`, which the browser has not visited yet."""
    browser, urls = own.browser(who), [link]
    while not urls[-1].startswith(end):
        urls.append((await browser.get(urls[-1], follow_redirects=False)).headers["location"])
    return urls


async def signed_out(own: Company, who: str, upstream: str = "tickets") -> httpx2.Response:
    """What the portal answers to a person who signs out of an upstream."""
    headers = {"Authorization": f"Bearer {own.provider.token_of(who)}"}
    async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http:
        return await http.delete(f"{own.url}/oauth/logins/{upstream}")


async def rows(own: Company, where: str) -> list[tuple[str, ...]]:
    """The kinds of the key-value rows in the store."""
    query = f"SELECT kind FROM key_values WHERE {where}"
    found: list[tuple[str, ...]] = await own.portal.runs.store_or_error().read(lambda file: file._rows(query))
    return found
