"""The identity provider misbehaves, is slow or down, or strangers want it to be."""

import time
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.responses import JSONResponse, Response

from portal.identity import sign_in
from tests.portal.issuer import AUDIENCE, CLIENT, Issuer, refused, signing_in
from tests.upstreams.peers import DEADLINE_SECONDS


async def test_keys_are_rotated_without_a_restart(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    signing = signing_in(issuer)
    await signing.bearer(issuer.token())
    before = issuer.token(sub="bob")
    issuer.rotate("second")
    monkeypatch.setattr(sign_in, "COOLDOWN_SECONDS", 0)
    assert (await signing.bearer(issuer.token())).name == "person ann"
    assert await refused(signing, before) == (401, "invalid_token")


async def test_an_operator_is_told_why_nobody_can_sign_in(issuer: Issuer) -> None:
    async def fault(at: Issuer = issuer, **settings: Any) -> str:
        return await signing_in(at, **settings)._provider.fault()

    assert await fault() == await fault(introspection=CLIENT) == ""
    assert "client_secret" in await fault(introspection={**CLIENT, "client_secret": "wrong"})
    assert "ConnectError" in await fault(Issuer("http://127.0.0.1:1"))
    issuer.named = "https://id.example"
    assert "calls itself 'https://id.example'" in await fault()


async def test_unknown_keys_do_not_let_strangers_flood_the_issuer(issuer: Issuer) -> None:
    signing = signing_in(issuer)
    await signing.bearer(issuer.token())
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    for number in range(50):
        await refused(signing, issuer.token(kid=f"k{number}", key=key))
    assert len(issuer.asked) <= 3


@pytest.mark.parametrize(
    "answer",
    [
        Response("<html>"), Response("[" * 100_000), Response(" " * (2 << 20)), JSONResponse([]), JSONResponse({}),
        JSONResponse({"keys": []}), JSONResponse({"keys": 7}), JSONResponse({"keys": {"a": "b"}}),
        JSONResponse({"keys": [{"kty": "RSA", "kid": "first-rsa", "n": 5, "e": {}}]}), Response(status_code=404),
        JSONResponse({"keys": [{"kty": "RSA", "kid": "first-rsa", "n": "AQAB", "e": "AQAB", "use": "enc"}]}),
        Response(status_code=302, headers={"location": "/.well-known/openid-configuration"}),
    ],
    ids=lambda answer: repr(answer.body[:60]),
)  # fmt: skip
async def test_a_broken_answer_about_keys_is_the_issuers_fault_and_is_not_asked_for_by_everybody(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, answer: Response
) -> None:
    monkeypatch.setattr(sign_in, "PAUSE_SECONDS", 1_000)
    signing = signing_in(issuer)
    issuer.answers["/jwks"] = answer
    for number in range(5):
        assert await refused(signing, issuer.token(sub=f"s{number}")) == (503, "temporarily_unavailable")
    assert issuer.asked.count("/jwks") == 1
    monkeypatch.setattr(sign_in, "PAUSE_SECONDS", 0)
    signing = signing_in(issuer)
    assert await refused(signing, issuer.token()) == (503, "temporarily_unavailable")
    del issuer.answers["/jwks"]
    assert (await signing.bearer(issuer.token())).name == "person ann"


async def test_a_broken_key_does_not_spoil_the_others(issuer: Issuer) -> None:
    [listed] = [key for key in issuer.listed() if key["kid"] == "first-rsa"]
    others: list[Any] = [7, {}, {"kty": "oct", "k": "eA"}, {"kty": "new"}, {**listed, "n": 5, "kid": "x"}]
    issuer.answers["/jwks"] = JSONResponse({"keys": [*others, listed]})
    assert (await signing_in(issuer).bearer(issuer.token())).name == "person ann"


async def test_strangers_who_wait_for_a_slow_issuer_delay_nobody_whose_key_is_known(issuer: Issuer) -> None:
    signing = signing_in(issuer, introspection=CLIENT)
    await signing.bearer(issuer.token())
    issuer.lets_go = anyio.Event()
    told: list[tuple[int, str]] = []
    some = anyio.Event()

    async def junk(number: int) -> None:
        told.append(await refused(signing, f"junk{number}"))
        some.set()

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for number in range(sign_in.MAX_WAITING + 10):
                tasks.start_soon(junk, number)
            await some.wait()
            assert (await signing.bearer(issuer.token(sub="bob"))).name == "person bob"
            assert told == [(503, "temporarily_unavailable")] * len(told)
            issuer.lets_go.set()
    assert sorted(set(told)) == [(401, "invalid_token"), (503, "temporarily_unavailable")]
    assert told.count((401, "invalid_token")) >= sign_in.MAX_WAITING


async def test_the_issuer_is_asked_about_a_token_once_for_many_requests(issuer: Issuer) -> None:
    signing = signing_in(issuer, introspection=CLIENT)
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": time.time() + 300}
    async with anyio.create_task_group() as tasks:
        for _ in range(2 * sign_in.MAX_WAITING):
            tasks.start_soon(signing.bearer, "opaque")
            tasks.start_soon(refused, signing, "junk")
    assert issuer.asked.count("/introspect") == 2


async def test_strangers_keep_nobody_out_who_was_there_before(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing, now = signing_in(issuer, introspection=CLIENT), time.time()
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": now + 3_000}
    await signing.bearer("opaque")
    monkeypatch.setattr(sign_in, "time", SimpleNamespace(time=lambda: now + 61, monotonic=time.monotonic))
    async with anyio.create_task_group() as tasks:
        for number in range(sign_in.MAX_WAITING + 1):
            tasks.start_soon(refused, signing, f"junk{number}")
        await anyio.lowlevel.checkpoint()
        assert (await signing.bearer("opaque")).name == "person ann"
    assert issuer.asked.count("/introspect") == sign_in.MAX_WAITING + 2


@pytest.mark.parametrize(
    "answer", [*(Response(status_code=code) for code in (400, 403, 429, 500)), Response("<html>")]
)
async def test_an_issuer_that_refuses_the_portal_says_nothing_about_the_token(
    issuer: Issuer, answer: Response
) -> None:
    """And one token for which it answers so, perhaps a stranger's, does not keep others from being checked."""
    signing = signing_in(issuer, introspection=CLIENT)
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": time.time() + 300}
    issuer.answers["/introspect"] = answer
    assert await refused(signing, "opaque") == (503, "temporarily_unavailable")
    del issuer.answers["/introspect"]
    assert (await signing.bearer("opaque")).name == "person ann"


async def test_the_portals_own_name_and_secret_may_have_any_characters(issuer: Issuer) -> None:
    issuer.client = ("por:tal", "s3 +%é:/")
    client = dict(zip(CLIENT, issuer.client, strict=True))
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": time.time() + 300}
    assert (await signing_in(issuer, introspection=client).bearer("opaque")).name == "person ann"


async def test_an_issuer_that_is_down_is_told_and_not_asked_by_everybody(issuer: Issuer) -> None:
    signing = signing_in(issuer)
    issuer.is_down = True
    for number in range(5):
        assert await refused(signing, issuer.token(sub=f"s{number}")) == (503, "temporarily_unavailable")
    assert len(issuer.asked) == 1


async def test_an_issuer_that_is_too_slow_is_not_asked_by_everybody(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(sign_in, "PAUSE_SECONDS", 1_000)
    signing = signing_in(issuer, introspection={**CLIENT, "url": f"{issuer.url}/introspect"})
    issuer.lets_go = anyio.Event()
    assert await refused(signing, "junk") == (503, "temporarily_unavailable")
    issuer.lets_go.set()
    assert await refused(signing, "other") == (503, "temporarily_unavailable")


async def test_known_keys_serve_while_the_issuer_is_down(issuer: Issuer) -> None:
    signing = signing_in(issuer)
    await signing.bearer(issuer.token())
    issuer.is_down = True
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    await refused(signing, issuer.token(kid="unknown", key=key))
    assert (await signing.bearer(issuer.token(sub="bob"))).name == "person bob"


async def test_metadata_of_another_issuer_is_no_word_of_this_one(issuer: Issuer) -> None:
    issuer.named = "https://other.example"
    assert await refused(signing_in(issuer), issuer.token()) == (503, "temporarily_unavailable")


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": None}, {"aud": "other"}, {"exp": None}, {"exp": 1}, {"exp": True}, {"exp": "1"},
        {"nbf": 1e12}, {"nbf": "x"}, {"iss": "https://other.example"}, {"sub": None},
        {"exp": 10**400},
        {"active": False}, {"active": "true"}, {"cnf": {"jkt": "x"}}, {"typ": "Refresh"},
    ],
    ids=repr,
)  # fmt: skip
async def test_what_the_issuer_says_about_a_token_has_to_be_enough(
    issuer: Issuer, claims: dict[str, Any]
) -> None:
    signing = signing_in(issuer, introspection=CLIENT)
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": time.time() + 300, **claims}
    assert await refused(signing, "opaque") == (401, "invalid_token")
    issuer.active["other"] = {"sub": "ann", "aud": AUDIENCE, "exp": time.time() + 300}
    assert (await signing.bearer("other")).name == "person ann"
