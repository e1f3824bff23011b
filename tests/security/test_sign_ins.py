"""Attacks on people who sign in at upstreams: links of others, old states, foreign codes, changes in between."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp_types import ElicitResult

from portal.identity.accounts import PersonLogins
from portal.server import sign_in_pages as pages
from portal.server.server import build_server
from portal.server.sign_in_pages import COOKIE
from tests.portal.app.test_reload import changed
from tests.portal.peers import DEADLINE_SECONDS
from tests.portal.people import Company, company, link_in, run
from tests.upstreams.oauth_peer import RESOURCE_METADATA, SERVER_METADATA, saying

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_state")]


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Company]:
    async with company(tmp_path) as own:
        yield own


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
    """The portal's answer to a person who signs out of an upstream."""
    headers = {"Authorization": f"Bearer {own.provider.token_of(who)}"}
    async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http:
        return await http.delete(f"{own.url}/oauth/logins/{upstream}")


async def rows(own: Company, where: str) -> list[tuple[str, ...]]:
    """The kinds of the key-value rows in the store."""
    query = f"SELECT kind FROM key_values WHERE {where}"
    found: list[tuple[str, ...]] = await own.portal.runs.store_or_error().read(lambda file: file._rows(query))
    return found


async def link_of(own: Company, who: str) -> str:
    return link_in(await run(await own.client(who)))


async def is_signed_in(own: Company, who: str) -> bool:
    answer = await run(await own.client(who))
    return answer["status"] == "ok" and answer["result"]["who"] == who


async def test_link_is_of_no_use_to_anybody_else(own: Company) -> None:
    link = await link_of(own, "ann")
    answer = await own.browser("mallory").get(link)
    assert answer.status_code == 403
    assert own.authorization.grants == ["authorization_code"], "only the operator got a token"
    assert not await is_signed_in(own, "ann") and not await is_signed_in(own, "mallory")
    assert (await own.browser("ann").get(link)).status_code == 200
    assert await is_signed_in(own, "ann") and not await is_signed_in(own, "mallory")


async def test_url_of_a_later_step_is_of_no_use_in_another_browser(own: Company) -> None:
    urls = await steps_to(own, "mallory", await link_of(own, "mallory"), own.authorization.issuer)
    # Each could end in mallory's account with ann's token.
    for url in urls[1:]:
        page = await own.browser("ann").get(url)
        assert page.status_code in (400, 403), url
    assert not await is_signed_in(own, "mallory")
    # The harmless twin: the browser that began.
    assert (await own.browser("mallory").get(urls[-1])).status_code == 200
    assert await is_signed_in(own, "mallory")


async def test_no_step_can_be_repeated_or_taken_for_another(own: Company) -> None:
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
    refused += [f"{base}/{step}?state={each}&code=x" for step in ("callback", "identity") for each in states]
    refused += [f"{callback}&state=x", f"{base}/callback", f"{base}/identity"]
    grants = [*own.authorization.grants]
    for url in refused:
        assert (await ann.get(url)).status_code in (400, 502), url
    assert own.authorization.grants == grants
    assert await is_signed_in(own, "ann")


async def test_code_of_somebody_else_is_refused(own: Company) -> None:
    """PKCE binds a code to the sign-in that asked for it."""
    anns, mallorys = [
        httpx2.URL(await callback_of(own, who, await link_of(own, who))) for who in ("ann", "mallory")
    ]
    url = mallorys.copy_set_param("code", anns.params["code"])
    assert (await own.browser("mallory").get(url, follow_redirects=False)).status_code == 502
    assert not await is_signed_in(own, "mallory")
    assert (await own.browser("ann").get(anns, follow_redirects=False)).status_code == 200
    assert await is_signed_in(own, "ann")


async def test_link_expires(own: Company, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_cookie_cannot_be_read_by_scripts_and_pages_cannot_be_framed(own: Company) -> None:
    answer = await own.browser("ann").get(await link_of(own, "ann"), follow_redirects=False)
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(COOKIE) and "httponly" in cookie and "samesite=lax" in cookie
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


async def test_many_sign_ins_of_one_person_leave_one_row(own: Company) -> None:
    links = [await link_of(own, "ann") for _ in range(5)]
    urls = [await callback_of(own, "ann", link) for link in links]
    ann = own.browser("ann")
    assert [(await ann.get(url)).status_code for url in urls] == [400] * 4 + [200]
    assert await rows(own, "owner != ''") == [("login",)]


async def test_calls_of_two_people_at_once_never_meet(own: Company) -> None:
    clients = {who: await own.client(who) for who in ("ann", "bob", "eve")}
    for who, client in clients.items():
        await own.browser(who).get(link_in(await run(client)))
    seen: dict[str, set[str]] = {who: set() for who in clients}

    async def call(who: str) -> None:
        code = (
            "import asyncio\n[r['who'] for r in await asyncio.gather(*[tickets.whoami() for _ in range(9)])]"
        )
        seen[who].update((await run(clients[who], code))["result"])

    async with anyio.create_task_group() as tasks:
        for who in [*clients] * 4:
            tasks.start_soon(call, who)
    assert seen == {who: {who} for who in clients}


@pytest.mark.parametrize("audience", ["portal", "upstream"])
async def test_upstream_that_names_the_portals_provider_gets_no_token(own: Company, audience: str) -> None:
    link = await link_of(own, "ann")
    told = {"resource": own.upstream.url, "authorization_servers": [own.provider.url]}
    own.upstream.answers[RESOURCE_METADATA] = saying(told)
    await reload(own, lambda all: all["tickets"]["oauth"].update(client_id="portal"))
    url = await callback_of(own, "ann", link)
    if audience == "upstream":  # a provider that knows resources
        own.provider.claims["ann"] = {"aud": own.upstream.url}
    page = await own.browser("ann").get(url)
    assert page.status_code == (502 if audience == "portal" else 200), page.text
    own.provider.claims.clear()
    if audience == "portal":
        await link_of(own, "ann")


async def test_upstream_that_borrows_endpoints_gets_no_token(own: Company) -> None:
    link = await link_of(own, "ann")
    ends = {f"{name}_endpoint": f"{own.provider.url}/{name}" for name in ("authorization", "token")}
    told = {"issuer": own.authorization.issuer, "code_challenge_methods_supported": ["S256"], **ends}
    own.authorization.answers[SERVER_METADATA] = saying(told)
    await reload(own, lambda all: all["tickets"]["oauth"].update(client_id="portal"))
    url = httpx2.URL(await callback_of(own, "ann", link))
    page = await own.browser("ann").get(url.copy_remove_param("iss"))  # many providers send none
    assert page.status_code == 502, page.text
    await link_of(own, "ann")


async def signed_in(own: Company, who: str, **options: Any) -> Client:
    client = await own.client(who, **options)
    page = await own.browser(who).get(link_in(await run(client)))
    assert page.status_code == 200
    return client


async def reload(own: Company, change: Callable[[Any], object]) -> None:
    """Change the upstreams of a portal that serves."""
    await own.portal.reload.apply(changed(own.folder, lambda data: change(data["upstreams"])))


async def forked(own: Company, token: str, run_id: str, **fork: Any) -> dict[str, Any]:
    """The answer of a fork of a run from its first call, by whoever has the token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=own.url, headers=headers, timeout=DEADLINE_SECONDS) as http:
        made = await http.post(f"/runs/{run_id}/fork", json={"at": 1, **fork})
        assert made.status_code == 201, made.text
        async with http.stream("GET", f"{made.headers['location']}/events") as events:
            await events.aread()  # until it has ended
        answer: dict[str, Any] = (await http.get(made.headers["location"])).json()["answer"]
        return answer


async def test_fork_of_the_operators_run_has_no_login_of_the_operator(tmp_path: Path) -> None:
    async with company(tmp_path, server={"token": "static-token"}) as own:
        async with Client(build_server(own.portal)) as local:
            first = await run(local, "await tickets.write()")
            assert first["result"]["who"] == "operator"
        answer = await forked(own, "static-token", first["run_id"], code="await tickets.whoami()")
        assert answer["error"]["code"] == "sign_in_needed"
        assert [name for name, _ in own.mirror.calls] == ["write"]


async def test_fork_has_the_claims_of_today(tmp_path: Path) -> None:
    async with company(tmp_path, per=None, headers={"X-User": "${caller.role}"}) as own:
        own.provider.claims["ann"] = {"role": "admin"}
        first = await run(await own.client("ann"), "await tickets.write()")
        own.provider.claims["ann"] = {"role": "reader"}
        answer = await forked(own, own.provider.token_of("ann"), first["run_id"])
        assert (first["result"]["user"], answer["result"]["user"]) == ("admin", "reader")


@pytest.mark.parametrize("change", ["changed", "removed"])
async def test_call_in_flight_outlives_a_reload(own: Company, change: str) -> None:
    answers: list[dict[str, Any]] = []
    ann = await signed_in(own, "ann")
    own.mirror.hold()

    async def work() -> None:
        answers.append(await run(ann, "await tickets.write()"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        with anyio.fail_after(DEADLINE_SECONDS):
            await own.mirror.is_reached.wait()
        await reload(own, lambda all: all.pop("tickets") if change == "removed" else slower(all))
        assert len(own.portal.fleet.people) == 0, "the next call has the new settings"
        own.mirror.may_answer.set()
    assert answers[0]["result"]["who"] == "ann"
    if change == "changed":
        assert (await run(ann))["result"]["who"] == "ann"


def slower(upstreams: Any) -> None:
    upstreams["tickets"]["call_seconds"] = 50


async def test_sign_in_that_began_at_another_url_gives_the_new_one_no_token(own: Company) -> None:
    url = await callback_of(own, "ann", link_in(await run(await own.client("ann"))))
    elsewhere = own.upstream.url.replace("127.0.0.1", "localhost")
    await reload(own, lambda all: all["tickets"].update(url=elsewhere))
    assert (await own.browser("ann").get(url)).status_code == 400
    assert own.authorization.grants == ["authorization_code"], "only the operator got a token"


async def test_upstream_that_goes_while_its_person_signs_in_is_refused(own: Company) -> None:
    async def sign_in(context: Any, params: Any) -> ElicitResult:
        await reload(own, lambda all: all.pop("tickets"))
        return ElicitResult(action="accept")

    ann = await own.client("ann", elicitation_callback=sign_in)
    error = (await run(ann))["error"]
    assert (error["code"], "nobody signs in" in error["message"]) == ("upstream_unavailable", True)


async def test_missing_login_of_the_portal_is_no_persons_fault(tmp_path: Path) -> None:
    headers = {"X-User": "${caller.sub}"}
    async with company(tmp_path, per="portal", headers=headers, runs={"key": None}) as own:
        ann = await own.client("ann")
        answer = await run(ann)
        assert (answer["result"]["who"], answer["result"]["user"]) == ("operator", "ann")
        own.authorization.end()
        error = (await run(ann))["error"]
        assert error["code"] == "upstream_needs_login"
        assert "mcp-code-portal login tickets" in error["message"]


async def test_wrong_secret_of_the_portal_costs_nobody_a_login(own: Company) -> None:
    ann = await signed_in(own, "ann")
    own.authorization.expire()
    own.authorization.answers["/token"] = saying({"error": "invalid_client"}, 401)
    link_in(await run(ann))
    own.authorization.answers.clear()
    assert (await run(ann))["result"]["who"] == "ann"


async def test_sign_out_during_a_renewal_leaves_no_token(
    own: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_renewed, has_come = anyio.Event(), anyio.Event()
    replace, locked, delete = PersonLogins.replace, PersonLogins.locked, PersonLogins.delete

    async def late(logins: PersonLogins, *given: Any) -> Any:
        is_renewed.set()
        await has_come.wait()
        return await replace(logins, *given)

    def coming(method: Callable[..., Any]) -> Callable[..., Any]:
        def come(*given: Any) -> Any:
            has_come.set()
            return method(*given)

        return come

    ann = await signed_in(own, "ann")
    own.authorization.expire()
    monkeypatch.setattr(PersonLogins, "replace", late)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, ann)
        with anyio.fail_after(DEADLINE_SECONDS):
            await is_renewed.wait()
        monkeypatch.setattr(PersonLogins, "locked", coming(locked))
        monkeypatch.setattr(PersonLogins, "delete", coming(delete))
        assert (await signed_out(own, "ann")).status_code == 204
    # The old refresh token would have been no use: what it was changed for would live on.
    assert own.authorization.grants[-3:] == ["refresh_token", "revoked", "revoked"]
    link_in(await run(ann))


async def test_sign_out_says_that_a_login_was_not_revoked(own: Company) -> None:
    ann = await signed_in(own, "ann")
    own.authorization.answers["/revoke"] = saying({}, 500)
    page = await signed_out(own, "ann")
    assert (page.status_code, "deleted, but was not revoked" in page.text) == (502, True)
    link_in(await run(ann))


async def test_person_who_signed_out_at_another_replica_lists_nothing(tmp_path: Path) -> None:
    async with company(tmp_path, server={"offers": ["resources"]}) as own:
        ann = await signed_in(own, "ann")
        assert [each.name for each in (await ann.list_resources()).resources] == ["tickets.of ann"]
        owner, store = next(iter(own.portal.fleet.people._connections))[1], own.portal.runs.store_or_error()
        await store.write(lambda file: file.drop("login", owner, "tickets"))
        assert (await ann.list_resources()).resources == []


@pytest.mark.parametrize("change", ["removed", "moved"])
async def test_person_signs_out_of_an_upstream_that_is_no_more(own: Company, change: str) -> None:
    await signed_in(own, "ann")
    elsewhere = own.upstream.url.replace("127.0.0.1", "localhost")
    removed = change == "removed"
    await reload(own, lambda all: all.pop("tickets") if removed else all["tickets"].update(url=elsewhere))
    for who, status in (("bob", 404), ("ann", 204), ("ann", 404)):
        answers = [await signed_out(own, who, name) for name in ("tickets", "x")]
        assert [each.status_code for each in answers] == [status, 404]
    assert own.authorization.grants[-2:] == ["revoked", "revoked"]
    assert await rows(own, "kind LIKE 'login%'") == []
