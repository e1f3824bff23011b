"""Attacks on people's logins while something changes: the manifest, who they are, the run that they begin again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp_types import ElicitResult

from portal.identity.accounts import PersonLogins
from portal.server.server import build_server
from tests.portal.accounts.peers import Company, company, link_in, run
from tests.portal.peers import DEADLINE_SECONDS
from tests.portal.test_reload import changed
from tests.security.sign_ins import callback_of, rows, signed_out
from tests.upstreams.oauth_peer import saying

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_state")]


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
async def test_call_in_flight_outlives_a_reload(tmp_path: Path, change: str) -> None:
    answers: list[dict[str, Any]] = []
    async with company(tmp_path) as own:
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


async def test_sign_in_that_began_at_another_url_gives_the_new_one_no_token(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        url = await callback_of(own, "ann", link_in(await run(await own.client("ann"))))
        elsewhere = own.upstream.url.replace("127.0.0.1", "localhost")
        await reload(own, lambda all: all["tickets"].update(url=elsewhere))
        assert (await own.browser("ann").get(url)).status_code == 400
        assert own.authorization.grants == ["authorization_code"], "only the operator got a token"


async def test_upstream_that_goes_while_its_person_signs_in_is_refused(tmp_path: Path) -> None:
    async def sign_in(context: Any, params: Any) -> ElicitResult:
        await reload(own, lambda all: all.pop("tickets"))
        return ElicitResult(action="accept")

    async with company(tmp_path) as own:
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


async def test_wrong_secret_of_the_portal_costs_nobody_a_login(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        ann = await signed_in(own, "ann")
        own.authorization.expire()
        own.authorization.answers["/token"] = saying({"error": "invalid_client"}, 401)
        link_in(await run(ann))
        own.authorization.answers.clear()
        assert (await run(ann))["result"]["who"] == "ann"


async def test_sign_out_during_a_renewal_leaves_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

    async with company(tmp_path) as own:
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


async def test_sign_out_says_that_a_login_was_not_revoked(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
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
async def test_person_signs_out_of_an_upstream_that_is_no_more(tmp_path: Path, change: str) -> None:
    async with company(tmp_path) as own:
        await signed_in(own, "ann")
        elsewhere = own.upstream.url.replace("127.0.0.1", "localhost")
        removed = change == "removed"
        await reload(own, lambda all: all.pop("tickets") if removed else all["tickets"].update(url=elsewhere))
        for who, status in (("bob", 404), ("ann", 204), ("ann", 404)):
            answers = [await signed_out(own, who, name) for name in ("tickets", "x")]
            assert [each.status_code for each in answers] == [status, 404]
        assert own.authorization.grants[-2:] == ["revoked", "revoked"]
        assert await rows(own, "kind LIKE 'login%'") == []
