"""Attacks on people who sign in at upstreams: with links of others, old states, foreign codes, equal names."""

from pathlib import Path

import anyio
import httpx2
import pytest

from portal.server import sign_in_pages as pages
from portal.server.sign_in_pages import COOKIE
from tests.portal.accounts.peers import Company, company, link_in, run
from tests.portal.test_reload import changed
from tests.security.sign_ins import callback_of, rows, steps_to
from tests.upstreams.oauth_peer import RESOURCE_METADATA, SERVER_METADATA, saying

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_state")]


async def link_of(own: Company, who: str) -> str:
    return link_in(await run(await own.client(who)))


async def is_signed_in(own: Company, who: str) -> bool:
    answer = await run(await own.client(who))
    return answer["status"] == "ok" and answer["result"]["who"] == who


async def test_link_is_of_no_use_to_anybody_else(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        link = await link_of(own, "ann")
        answer = await own.browser("mallory").get(link)
        assert answer.status_code == 403
        assert own.authorization.grants == ["authorization_code"], "only the operator got a token"
        assert not await is_signed_in(own, "ann") and not await is_signed_in(own, "mallory")
        assert (await own.browser("ann").get(link)).status_code == 200
        assert await is_signed_in(own, "ann") and not await is_signed_in(own, "mallory")


async def test_url_of_a_later_step_is_of_no_use_in_another_browser(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        urls = await steps_to(own, "mallory", await link_of(own, "mallory"), own.authorization.issuer)
        # Each could end in mallory's account with ann's token.
        for url in urls[1:]:
            page = await own.browser("ann").get(url)
            assert page.status_code in (400, 403), url
        assert not await is_signed_in(own, "mallory")
        # The harmless twin: the browser that began.
        assert (await own.browser("mallory").get(urls[-1])).status_code == 200
        assert await is_signed_in(own, "mallory")


async def test_no_step_can_be_repeated_or_taken_for_another(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        link = await link_of(own, "ann")
        last = await own.browser("ann").get(link)
        steps = [each.request.url for each in (*last.history, last)]
        callback = next(each for each in steps if each.path.endswith("/callback"))
        identity = next(each for each in steps if each.path.endswith("/identity"))
        ann, base = own.browser("ann"), f"{own.url}/oauth/sign-in"
        sealed = link.rpartition("/")[2]
        states = callback.params["state"], identity.params["state"], sealed, "", "x", "é", "A" * 5_000
        refused = [str(callback), str(identity)]
        refused += [f"{base}/start/{each or 'y'}" for each in states if each != sealed]
        refused += [
            f"{base}/{step}?state={each}&code=x" for step in ("callback", "identity") for each in states
        ]
        refused += [f"{callback}&state=x", f"{base}/callback", f"{base}/identity"]
        grants = [*own.authorization.grants]
        for url in refused:
            assert (await ann.get(url)).status_code in (400, 502), url
        assert own.authorization.grants == grants
        assert await is_signed_in(own, "ann")


async def test_code_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """PKCE binds a code to the sign-in that asked for it."""
    async with company(tmp_path) as own:
        anns, mallorys = [
            httpx2.URL(await callback_of(own, who, await link_of(own, who))) for who in ("ann", "mallory")
        ]
        url = mallorys.copy_set_param("code", anns.params["code"])
        assert (await own.browser("mallory").get(url, follow_redirects=False)).status_code == 502
        assert not await is_signed_in(own, "mallory")
        assert (await own.browser("ann").get(anns, follow_redirects=False)).status_code == 200
        assert await is_signed_in(own, "ann")


async def test_link_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with company(tmp_path) as own:
        link = await link_of(own, "ann")
        monkeypatch.setattr(pages, "LINK_SECONDS", -1)
        assert (await own.browser("ann").get(link)).status_code == 400
        monkeypatch.undo()
        assert (await own.browser("ann").get(link)).status_code == 200


async def test_link_of_another_portal_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with company(tmp_path / "one") as own, company(tmp_path / "other", runs={"key": "k" * 32}) as other:
        sealed = (await link_of(other, "ann")).rpartition("/")[2]
        assert (await own.browser("ann").get(f"{own.url}/oauth/sign-in/start/{sealed}")).status_code == 400


async def test_equal_subjects_of_two_tenants_are_two_people(tmp_path: Path) -> None:
    async with company(tmp_path, tenants={"claim": "org"}) as own:
        own.provider.claims["ann"] = {"org": "x"}
        in_x = await own.client("ann")
        link = link_in(await run(in_x))
        own.provider.claims["ann"] = {"org": "y"}
        in_y = await own.client("ann")
        assert (await own.browser("ann").get(link)).status_code == 403
        own.provider.claims["ann"] = {"org": "x"}
        assert (await own.browser("ann").get(link)).status_code == 200
        assert (await run(in_x))["status"] == "ok"
        link_in(await run(in_y))


async def test_cookie_cannot_be_read_by_scripts_and_pages_cannot_be_framed(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        answer = await own.browser("ann").get(await link_of(own, "ann"), follow_redirects=False)
        cookie = answer.headers["set-cookie"].lower()
        assert cookie.startswith(COOKIE) and "httponly" in cookie and "samesite=lax" in cookie
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


async def test_many_sign_ins_of_one_person_leave_one_row(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        links = [await link_of(own, "ann") for _ in range(5)]
        urls = [await callback_of(own, "ann", link) for link in links]
        ann = own.browser("ann")
        assert [(await ann.get(url)).status_code for url in urls] == [400] * 4 + [200]
        assert await rows(own, "owner != ''") == [("login",)]


async def test_calls_of_two_people_at_once_never_meet(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        clients = {who: await own.client(who) for who in ("ann", "bob", "eve")}
        for who, client in clients.items():
            await own.browser(who).get(link_in(await run(client)))
        seen: dict[str, set[str]] = {who: set() for who in clients}

        async def call(who: str) -> None:
            code = "import asyncio\n[r['who'] for r in await asyncio.gather(*[tickets.whoami() for _ in range(9)])]"
            seen[who].update((await run(clients[who], code))["result"])

        async with anyio.create_task_group() as tasks:
            for who in [*clients] * 4:
                tasks.start_soon(call, who)
        assert seen == {who: {who} for who in clients}


@pytest.mark.parametrize("audience", ["portal", "upstream"])
async def test_upstream_that_names_the_portals_provider_gets_no_token_for_the_portal(
    tmp_path: Path, audience: str
) -> None:
    async with company(tmp_path) as own:
        link = await link_of(own, "ann")
        told = {"resource": own.upstream.url, "authorization_servers": [own.provider.url]}
        own.upstream.answers[RESOURCE_METADATA] = saying(told)
        await own.portal.reload.apply(
            changed(tmp_path, lambda data: data["upstreams"]["tickets"]["oauth"].update(client_id="portal"))
        )
        url = await callback_of(own, "ann", link)
        if audience == "upstream":  # a provider that knows resources
            own.provider.claims["ann"] = {"aud": own.upstream.url}
        page = await own.browser("ann").get(url)
        assert page.status_code == (502 if audience == "portal" else 200), page.text
        own.provider.claims.clear()
        if audience == "portal":
            await link_of(own, "ann")


async def test_upstream_that_borrows_endpoints_of_the_portals_provider_gets_no_token_for_the_portal(
    tmp_path: Path,
) -> None:
    async with company(tmp_path) as own:
        link = await link_of(own, "ann")
        ends = {f"{name}_endpoint": f"{own.provider.url}/{name}" for name in ("authorization", "token")}
        told = {"issuer": own.authorization.issuer, "code_challenge_methods_supported": ["S256"], **ends}
        own.authorization.answers[SERVER_METADATA] = saying(told)
        await own.portal.reload.apply(
            changed(tmp_path, lambda data: data["upstreams"]["tickets"]["oauth"].update(client_id="portal"))
        )
        url = httpx2.URL(await callback_of(own, "ann", link))
        page = await own.browser("ann").get(url.copy_remove_param("iss"))  # many providers send none
        assert page.status_code == 502, page.text
        await link_of(own, "ann")
