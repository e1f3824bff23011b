"""An identity provider in this process: metadata, keys, tokens, introspection. Its tests say where it misbehaves."""

import base64
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote_plus

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from manifests.portal_manifest import AuthSettings, Tenants
from portal.base.errors import SignInError
from portal.identity.sign_in import SignIn
from tests.upstreams.peers import http_peer

AUDIENCE = "https://portal.example/mcp"
CLIENT = {"client_id": "portal", "client_secret": "s3cret"}

_TURNS = itertools.cycle(range(8))


def rsa_key() -> rsa.RSAPrivateKey:
    """A key, which is none of the seven before it. To make one takes 40 ms, so a process makes eight."""
    return _made(next(_TURNS))


@cache
def _made(turn: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass(eq=False)
class Issuer:
    """`active` has the claims of tokens that are no JWTs. `asked` counts requests by path; `is_down` answers 500.

    `answers` has what is answered at a path instead. Introspection waits for `lets_go`.
    """

    url: str = ""
    named: str = ""
    """The issuer in the metadata, if it lies."""
    keys: dict[str, Any] = field(default_factory=dict)
    active: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    answers: dict[str, Response] = field(default_factory=dict)
    lets_go: anyio.Event = field(default_factory=anyio.Event)
    client: tuple[str, ...] = tuple(CLIENT.values())
    is_down: bool = False

    def __post_init__(self) -> None:
        self.rotate("first")
        self.lets_go.set()

    def rotate(self, key_id: str) -> None:
        """Sign with another key from now on; the earlier ones are gone."""
        self.keys = {
            f"{key_id}-rsa": rsa_key(),
            f"{key_id}-ec": ec.generate_private_key(ec.SECP256R1()),
        }

    def token(self, *, alg: str = "RS256", kid: str | None = None, key: Any = None, **claims: Any) -> str:
        """A token for ann. A claim that is None is left out."""
        now = time.time()
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 300, "scope": "mcp"}
        told = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        name = kid or next(
            each for each in self.keys if each.endswith("ec" if alg.startswith("ES") else "rsa")
        )
        return jwt.encode(told, key or self.keys[name], algorithm=alg, headers={"kid": name})

    def listed(self) -> list[dict[str, Any]]:
        """The keys as JWKs."""
        kinds = {"ec": jwt.algorithms.ECAlgorithm, "rsa": jwt.algorithms.RSAAlgorithm}
        return [
            {**json.loads(kinds[kid.rpartition("-")[2]].to_jwk(key.public_key())), "kid": kid, "use": "sig"}
            for kid, key in self.keys.items()
        ]

    def app(self) -> Starlette:
        async def metadata(request: Request) -> Response:
            here = {"jwks_uri": f"{self.url}/jwks", "introspection_endpoint": f"{self.url}/introspect"}
            return self._answer(request, {"issuer": self.named or self.url, **here})

        async def jwks(request: Request) -> Response:
            return self._answer(request, {"keys": self.listed()})

        async def introspect(request: Request) -> Response:
            form = await request.form()
            encoded = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
            if tuple(map(unquote_plus, encoded.split(":"))) != self.client:
                return JSONResponse({"error": "invalid_client"}, 401)
            await self.lets_go.wait()
            claims = self.active.get(str(form["token"]))
            return self._answer(request, {"active": claims is not None, **(claims or {})})

        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", metadata),
                Route("/jwks", jwks),
                Route("/introspect", introspect, methods=["POST"]),
            ]
        )

    def _answer(self, request: Request, content: dict[str, Any]) -> Response:
        self.asked.append(request.url.path)
        if self.is_down:
            return Response(status_code=500)
        return self.answers.get(request.url.path) or JSONResponse(content)


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    """An issuer on a port of this machine."""
    issuer = Issuer()
    async with http_peer(issuer.app()) as peer:
        issuer.url = f"http://127.0.0.1:{peer.port}"
        yield issuer


def signing_in(issuer: Issuer, tenants: dict[str, Any] | None = None, **settings: Any) -> SignIn:
    auth = AuthSettings.model_validate({"issuer": issuer.url, "audience": AUDIENCE, **settings})
    return SignIn(auth, None if tenants is None else Tenants.model_validate(tenants))


async def refused(signing: SignIn, token: str) -> tuple[int, str]:
    with pytest.raises(SignInError) as caught:
        await signing.bearer(token)
    return caught.value.status, caught.value.code
