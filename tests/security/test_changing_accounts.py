"""Attacks on people's logins while something changes: the manifest, who they are, the run that they begin again."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from portal.server import build_server
from tests.portal.accounts.peers import Company, company, run
from tests.portal.peers import DEADLINE_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_state")]


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
