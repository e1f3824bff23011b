"""Speaks to an authorization server's endpoints for tokens."""

import base64
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import httpx2
from mcp.shared.auth import OAuthToken
from pydantic import BaseModel, ValidationError

from upstreams.oauth.errors import OAuthRefusedError, OAuthUnreachableError
from upstreams.oauth.guarded_http import GuardedHttp
from upstreams.oauth.login import Client, Login

_CODE: Final = re.compile(r"[a-z_]{1,64}")
_MALFORMED: Final = "invalid_request"
_LATER: Final = frozenset({"server_error", "slow_down", "temporarily_unavailable"})
"""Words of OAuth that say no for now."""
_BUSY: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
_STATUSES_OF_NO: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED)
"""A no has one of these (RFC 6749, 5.2); others without a word of OAuth come of a gateway, or of a deployment."""


async def request_token(
    http: GuardedHttp, endpoint: str, client: Client, form: Mapping[str, str | None]
) -> OAuthToken:
    """Ask for a token by any grant; what is None in the form is left out.

    Raises:
        OAuthRefusedError: The server says no; `code` is its reason.
        OAuthUnreachableError: There is no usable answer.
    """
    answer = await http.ask(_request(endpoint, client, form))
    if answer.is_success:
        try:
            return OAuthToken.model_validate_json(answer.content)
        except ValidationError:
            if _error_code(answer.content):  # some tell it with HTTP 200
                raise refusal(answer) from None
            raise OAuthUnreachableError("the authorization server answered with no token") from None
    raise refusal(answer)


async def revoke(http: GuardedHttp, login: Login) -> bool:
    """Have the tokens forgotten where they came from (RFC 7009); False if the server does not do that.

    Raises:
        OAuthError: It did not work.
    """
    if login.revocation_endpoint is None:
        return False
    for token, kind in ((login.refresh_token, "refresh_token"), (login.access_token, "access_token")):
        if token is not None:
            await _revoke(http, login.revocation_endpoint, login.client, token, kind)
    return True


async def _revoke(http: GuardedHttp, endpoint: str, client: Client, token: str, kind: str) -> None:
    form = {"token": token, "token_type_hint": kind}
    answer = await http.ask(_request(endpoint, client, form))
    is_malformed = not answer.is_success and _error_code(answer.content) == _MALFORMED
    if is_malformed and client.auth_method != "client_secret_post":
        # Servers on the Python SDK (2.3) want the field of clients, too, that have no secret or send it elsewhere.
        answer = await http.ask(_request(endpoint, client, {**form, "client_secret": ""}))
    if not answer.is_success:
        raise refusal(answer)


def refusal(answer: httpx2.Response) -> OAuthRefusedError | OAuthUnreachableError:
    """What an answer means that does not hold what was asked for. Of its text only OAuth's own word is shown."""
    code = _error_code(answer.content)
    said = f"the authorization server says {code or f'HTTP {answer.status_code}'}"
    has_said_no = bool(code) or answer.status_code in _STATUSES_OF_NO
    if answer.is_server_error or answer.status_code in _BUSY or code in _LATER or not has_said_no:
        return OAuthUnreachableError(said)
    return OAuthRefusedError(said, code=code)


def _request(endpoint: str, client: Client, form: Mapping[str, str | None]) -> httpx2.Request:
    data = {name: value for name, value in form.items() if value is not None}
    data["client_id"] = client.client_id
    headers = {"Accept": "application/json"}
    if client.client_secret is not None and client.auth_method == "client_secret_basic":
        # RFC 6749, 2.3.1: both are encoded as in a form first.
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif client.client_secret is not None and client.auth_method == "client_secret_post":
        data["client_secret"] = client.client_secret
    return httpx2.Request("POST", endpoint, data=data, headers=headers)


class _Refusal(BaseModel):
    error: str


def _error_code(body: bytes) -> str:
    try:
        code = _Refusal.model_validate_json(body).error
    except ValidationError:
        return ""
    return code if _CODE.fullmatch(code) else ""
