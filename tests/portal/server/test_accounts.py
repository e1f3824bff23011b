"""People use upstreams with their own logins, which no one else gets."""

import asyncio
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp_types import ElicitResult

from manifests.errors import ManifestError
from manifests.loader import load_manifest
from manifests.portal_manifest import HttpUpstream
from manifests.references import ClaimReference
from portal.base.caller import Bearer
from portal.cli import login
from portal.cli.terminal import Terminal
from portal.identity.accounts import LOGIN
from portal.identity.sign_in import identity
from portal.server.server import build_server
from tests.portal.clients import Person
from tests.portal.peers import DEADLINE_SECONDS, write_manifest
from tests.portal.people import KEY, Company, company, link_in, run
from tests.upstreams.peers import open_fleet
from upstreams import fleet, people
from upstreams.errors import UpstreamClaimError, UpstreamUnavailableError

pytestmark = pytest.mark.usefixtures("own_state")


async def signed_in(own: Company, *people: str) -> list[Client]:
    """Clients of people who have signed in."""
    clients = [await own.client(who) for who in people]
    for client, who in zip(clients, people, strict=True):
        await own.browser(who).get(link_in(await run(client)))
    return clients


def content_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("*") if path.is_file())


async def test_two_people_sign_in_once_and_each_is_who_they_are(tmp_path: Path) -> None:
    async with company(tmp_path, audit={"to": "audit.jsonl"}) as own:
        ann, bob = await own.client("ann", "legacy"), await own.client("bob", "auto")
        for client, who in ((ann, "ann"), (bob, "bob")):
            first = await run(client)
            page = await own.browser(who).get(link_in(first))
            assert (page.status_code, "You are signed in at tickets." in page.text) == (200, True), page.text
            assert [call["state"] for call in first["calls"]] == ["not_started"]
        for client, who in ((ann, "ann"), (bob, "bob"), (ann, "ann")):
            answer = await run(client)
            assert answer["result"]["who"] == who
            assert answer["result"]["token"] == "[hidden]"
        assert own.mirror.listed == 1, "with the login of the operator, for all"
        assert own.authorization.forms[-1]["redirect_uri"] == f"{own.url}/oauth/sign-in/callback"
        assert {asked["resource"] for asked in own.provider.authorized} == {f"{own.url}/mcp"}
        stored = content_of(tmp_path)
        assert not any(token.encode() in stored for token in own.authorization.tokens)
        lines = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
        assert [each["who"] for each in lines if each["event"] == "signed_in"] == ["person ann", "person bob"]


async def test_identity_provider_need_not_know_the_portal_as_a_resource(tmp_path: Path) -> None:
    async with company(tmp_path, auth={"send_resource": False}) as own:
        await own.browser("ann").get(link_in(await run(await own.client("ann"))))
        assert ["resource" in asked for asked in own.provider.authorized] == [False]


@pytest.mark.servers
async def test_browser_finds_its_way_through_the_pages(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        ann = await own.client("ann")
        browser = (
            "chromium-headless-shell --no-sandbox --disable-gpu --disable-background-networking --dump-dom"
        )
        page = [f"--user-data-dir={tmp_path / 'profile'}", link_in(await run(ann))]
        with anyio.fail_after(DEADLINE_SECONDS * 2):
            shown = await anyio.run_process([*browser.split(), *page])
        assert b"You are signed in at tickets." in shown.stdout
        assert (await run(ann))["status"] == "ok"


async def test_client_that_opens_pages_is_asked_once_and_the_run_goes_on(tmp_path: Path) -> None:
    asked: list[Any] = []

    async def sign_in(context: Any, params: Any) -> ElicitResult:
        asked.append(params)
        await own.browser("ann").get(params.url)
        return ElicitResult(action="accept")

    async with company(tmp_path) as own:
        ann = await own.client("ann", elicitation_callback=sign_in)
        code = "import asyncio\nawait asyncio.gather(*[tickets.whoami() for _ in range(5)], tickets.write())"
        answer = await run(ann, code)
        assert [each["who"] for each in answer["result"]] == ["ann"] * 6
        assert [each.mode for each in asked] == ["url"]
        assert "tickets" in asked[0].message


async def test_keys_of_a_persons_results_are_in_nobodys_library(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        ann, bob = await own.client("ann"), await own.client("bob")
        operator = await own.stack.enter_async_context(Client(build_server(own.portal)))
        await own.browser("ann").get(link_in(await run(ann)))
        for client, is_told in ((ann, False), (operator, True)):
            own.mirror.more = {"project_of_ann": {}} if client is ann else {"project": {}}
            assert (await run(client))["status"] == "ok"
            found = str((await bob.call_tool("docs_search", {"query": "whoami", "detail": "full"})).content)
            assert ("project" in found, "project_of_ann" in found) == (is_told, False)


async def test_person_who_declines_gets_the_link_and_is_not_asked_again_in_that_run(tmp_path: Path) -> None:
    declining = Person()
    declining.action = "decline"
    async with company(tmp_path) as own:
        ann = await own.client("ann", elicitation_callback=declining)
        code = (
            "for _ in range(3):\n  try: await tickets.whoami()\n  except ToolError as e: last = e\nraise last"
        )
        answer = await run(ann, code)
        assert len(declining.asked) == 1
        assert link_in(answer).startswith(f"{own.url}/oauth/sign-in/start/")
        assert own.mirror.calls == []


async def test_person_who_is_slow_gets_the_link_before_the_time_of_the_script_is_over(tmp_path: Path) -> None:
    async with company(tmp_path, capabilities={"limits": {"wall_seconds": 3}}) as own:
        ann = await own.client("ann", elicitation_callback=Person())
        answer = await run(ann, "await tickets.whoami()")
        assert answer["error"]["code"] == "sign_in_needed"
        assert link_in(answer).startswith(f"{own.url}/oauth/sign-in/start/")


async def test_resources_and_prompts_are_those_of_whoever_reads_them(tmp_path: Path) -> None:
    read = "(await portal.read_resource('who://me', upstream='tickets'))[0]['text']"
    async with company(tmp_path, server={"offers": ["resources"]}) as own:
        ann, bob = await own.client("ann"), await own.client("bob")
        link = link_in(await run(ann, f"import portal\n{read}"))
        everything = await run(ann, "import portal\nawait portal.resources()")
        assert everything["result"]["resources"] == []
        assert "/oauth/sign-in/start/" in everything["result"]["notices"][0]
        await own.browser("ann").get(link)
        answer = await run(ann, f"import portal\n{read}")
        assert answer["result"] == "ann", answer
        listed = await run(ann, "import portal\nawait portal.resources()")
        assert [each["name"] for each in listed["result"]["resources"]] == ["of ann"]
        assert [each.name for each in (await ann.list_resources()).resources] == ["tickets.of ann"]
        assert (await bob.list_resources()).resources == []
        link_in(await run(bob, f"import portal\n{read}"))
        assert own.mirror.readers <= {"ann"}


async def test_person_never_gets_the_login_of_the_operator_instead(tmp_path: Path) -> None:
    spec = HttpUpstream.model_validate(PER_CALLER)
    async with open_fleet({"tickets": spec}, tmp_path, lambda upstream: None) as upstreams:
        with pytest.raises(UpstreamUnavailableError):
            async with upstreams.people.of("tickets", people.Person("x//ann")):
                pass


async def test_person_whom_only_headers_name_uses_the_shared_login_of_the_portal(tmp_path: Path) -> None:
    spec = HttpUpstream.model_validate({"url": PER_CALLER["url"], "oauth": {}})
    asked: list[tuple[str, ...]] = []

    def logins(*whose: str) -> Any:
        asked.append(whose)
        return fleet.login_store("tickets", spec)

    async with open_fleet({}, tmp_path, lambda upstream: None, portal_logins=logins) as upstreams:
        naming = {"X-User": (ClaimReference("sub"),)}
        upstreams.replace({"tickets": fleet.UpstreamSettings(spec, caller_headers=naming)}, ())
        async with upstreams.people.of("tickets", people.Person("x//ann", {"sub": "ann"})):
            pass
    assert asked == [("tickets", spec.url, "")] * 2


async def test_run_without_a_client_uses_the_login_of_its_owner_while_there_is_one(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        [ann] = await signed_in(own, "ann")
        headers = {"Authorization": f"Bearer {own.provider.token_of('ann')}"}
        async with httpx2.AsyncClient(base_url=own.url, headers=headers, timeout=60) as http:
            code = {"code": "await portal.sleep(0.5)\nawait tickets.whoami()"}
            answer = (await http.post("/runs?wait=30", json={**code})).json()
            assert answer["result"]["who"] == "ann"
            bob = {"Authorization": f"Bearer {own.provider.token_of('bob')}"}
            assert (await http.delete("/oauth/logins/tickets", headers=bob)).status_code == 404
            assert (await http.delete("/oauth/logins/tickets")).status_code == 204
            assert (await http.delete("/oauth/logins/tickets")).status_code == 404
            assert own.authorization.grants.count("revoked") == 2
            link_in((await http.post("/runs?wait=30", json={**code})).json())
            link_in(await run(ann))


async def test_who_signs_in_again_or_out_keeps_the_calls_in_flight(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        ann, browser = await own.client("ann"), own.browser("ann")
        link = link_in(await run(ann))
        headers = {"Authorization": f"Bearer {own.provider.token_of('ann')}"}
        for is_out in (False, True):
            await browser.get(link)
            own.mirror.hold()
            call = asyncio.ensure_future(run(ann, "await tickets.write()"))
            with anyio.fail_after(DEADLINE_SECONDS):
                await own.mirror.is_reached.wait()
            if is_out:
                assert (await browser.delete(f"{own.url}/oauth/logins/tickets", headers=headers)).is_success
            else:
                await browser.get(link)
            own.mirror.may_answer.set()
            assert (await call)["result"]["who"] == "ann"
        link_in(await run(ann))


async def test_operator_signs_one_person_out(tmp_path: Path) -> None:
    async with company(tmp_path, tenants={"claim": "org", "profiles": {"*": "p"}}, profiles={"p": {}}) as own:
        own.provider.claims = {who: {"org": "x"} for who in ("ann", "bob")}
        ann, bob = await signed_in(own, "ann", "bob")
        for tenant, revoked, status in ((None, 0, 2), ("y", 0, 0), ("x", 2, 0)):
            options = Namespace(upstream="tickets", is_out=True, person="ann", tenant=tenant)
            assert await login.command(own.portal.manifest, options, Terminal()) == status
            assert own.authorization.grants.count("revoked") == revoked
        link_in(await run(ann))
        assert (await run(bob))["result"]["who"] == "bob"
        # Who had locked the login leaves an empty one.
        owner = Bearer.of("", identity(own.provider.url, "ann"), "p", "x").run_owner
        await own.portal.runs.store_or_error().write(lambda tables: tables.lock(LOGIN, owner, "tickets"))
        assert await login.command(own.portal.manifest, options, Terminal()) == 0


async def test_login_that_is_refused_has_to_be_renewed_by_its_person_alone(tmp_path: Path) -> None:
    async with company(tmp_path) as own:
        ann, bob = await signed_in(own, "ann", "bob")
        own.authorization.end()
        await own.browser("ann").get(link_in(await run(ann)))
        assert (await run(ann))["result"]["who"] == "ann"
        link_in(await run(bob))


async def test_connections_end_when_they_are_idle_or_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people, "MAX_CONNECTIONS", 1)
    async with company(tmp_path) as own:
        ann, bob = await signed_in(own, "ann", "bob")
        for client, who in ((ann, "ann"), (bob, "bob")) * 2:
            assert (await run(client))["result"]["who"] == who
            assert len(own.portal.fleet.people) == 1
        own.portal.fleet.people.remove("tickets", "", "somebody else")
        assert len(own.portal.fleet.people) == 1
        monkeypatch.setattr(fleet, "IDLE_SECONDS", 0.05)
        assert (await run(ann))["result"]["who"] == "ann"
        (last,) = own.portal.fleet.people._connections.values()
        with anyio.fail_after(DEADLINE_SECONDS):
            while last.upstream.state.status != "stopped":
                await last.upstream.availability.changed()
        assert len(own.portal.fleet.people) == 0


async def test_static_token_is_no_person(tmp_path: Path) -> None:
    server = {"token": "static-token", "tokens": [{"token": "other-token"}]}
    async with company(tmp_path, server=server) as own:
        for token in ("static-token", "other-token"):
            error = (await run(await own.client("", token=token)))["error"]
            assert (error["code"], "http" in error["message"]) == ("sign_in_needed", False)
        assert own.mirror.calls == []


async def test_header_names_whoever_calls_and_is_sent_with_no_claim_that_is_none(tmp_path: Path) -> None:
    headers = {"X-User": "user=${caller.email}; of=${caller.tenant}", "X-Plain": "$${caller.email}"}
    none = ["", "a\r\nX-User: root", "a\n", "a ", "a\x00", "é", " a", "\u2028", "x" * 1_025]
    async with company(tmp_path, per=None, headers=headers, tenants={"claim": "org"}) as own:
        for email in none:
            with pytest.raises(UpstreamClaimError):
                own.portal.fleet.people.headers("tickets", {"email": email, "tenant": "x"})
        for who, other in (("eve", ["a"]), ("joe", 7), ("sue", "é")):
            own.provider.claims[who] = {"email": other, "org": "x"}
            assert (await run(await own.client(who)))["error"]["code"] == "no_claim"
        async with Client(build_server(own.portal)) as local:
            assert (await run(local))["error"]["code"] == "sign_in_needed"
        assert own.mirror.calls == []
        for who, email, org in (("ann", "ann@example.org", "x"), ("bob", "a b", "y")):
            own.provider.claims[who] = {"email": email, "org": org}
            assert (await run(await own.client(who)))["result"]["user"] == f"user={email}; of={org}"


SIGNING_IN = {"issuer": "https://id.example", "audience": "https://portal.example/mcp", "client_id": "portal"}
PER_CALLER = {"url": "https://tickets.example/mcp", "oauth": {"per": "caller"}}
NAMING = {"url": "https://tickets.example/mcp", "headers": {"X-User": "${caller.email}"}}


@pytest.mark.parametrize(
    ("upstream", "sections", "word"),
    [
        (PER_CALLER, {"server": {"auth": SIGNING_IN}}, "runs.key"),
        (PER_CALLER, {"server": {"auth": {**SIGNING_IN, "client_id": None}}, "runs": {"key": KEY}}, "client_id"),
        (PER_CALLER, {"server": {"token": "t"}, "runs": {"key": KEY}}, "server.auth"),
        (NAMING, {}, "server.auth"),
        ({"url": "https://${caller.email}.example/"}, {"server": {"auth": SIGNING_IN}}, "not allowed here"),
        ({"command": "x", "env": {"A": "${caller.sub}"}}, {"server": {"auth": SIGNING_IN}}, "not allowed here"),
        ({**NAMING, "headers": {"X-User": "${caller.email:-x}"}}, {"server": {"auth": SIGNING_IN}}, "reference"),
        ({**NAMING, "headers": {"X-User": ["${caller.email}"]}}, {"server": {"auth": SIGNING_IN}}, "is a list"),
        ({**NAMING, "headers": "${caller.email}"}, {"server": {"auth": SIGNING_IN}}, "it must be a mapping"),
        ({**NAMING, "headers": {"Authorization": "${caller.sub}"}, "oauth": {}}, {}, "Authorization"),
    ],
)  # fmt: skip
def test_manifest_that_cannot_know_who_calls_is_refused(
    tmp_path: Path, upstream: dict[str, Any], sections: dict[str, Any], word: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(write_manifest(tmp_path, {"tickets": upstream}, **sections), {})
    assert word in str(caught.value)


def test_manifest_without_sign_in_may_be_for_its_one_person(tmp_path: Path) -> None:
    assert load_manifest(write_manifest(tmp_path, {"tickets": PER_CALLER}), {}).caller_claims == set()
