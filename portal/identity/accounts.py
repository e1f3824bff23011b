"""Which login a call uses: the portal's, or that of the person who calls.

Rule 1: a person's login and connection are for runs of that person alone, told apart by `Caller.run_owner`.
Rule 2: who did not sign in is nobody. Only without `server.auth`, and over stdio, the portal's own login stands for the
one person there is.
"""

import json
from typing import Final

from cryptography.fernet import InvalidToken

from manifests.manifest import Manifest
from manifests.portal_manifest import HttpUpstream
from portal.base.caller import LOCAL, Caller
from portal.identity.logins import PersonLogins
from portal.records.audit.audit import NO_AUDIT, Audit
from portal.records.store.records import fernet_of
from portal.records.store.writer import RunStore
from upstreams.errors import UpstreamCallerError, UpstreamUnavailableError
from upstreams.fleet import Fleet
from upstreams.people import Person

LINK_SECONDS: Final = 3_600
"""How long a link to sign in may be opened."""

PATH: Final = "/oauth/sign-in"


class SignInSeal:
    """Makes the texts in URLs that only the portals with this `runs.key` can make and read."""

    def __init__(self, key: str) -> None:
        self._fernet = fernet_of(key, "sign-in")

    def close(self, step: str, *parts: str) -> str:
        return self._fernet.encrypt(json.dumps([step, *parts]).encode()).decode().rstrip("=")

    def open(self, text: str, step: str, seconds: int) -> list[str] | None:
        """What was sealed for this step at most so many seconds ago; None for anything else."""
        try:
            content = self._fernet.decrypt(f"{text}{'=' * (-len(text) % 4)}".encode(), ttl=seconds)
        except (InvalidToken, UnicodeEncodeError):
            return None
        sealed, *parts = json.loads(content)
        return parts if sealed == step else None


class Accounts:
    """The accounts of people at the upstreams of one portal."""

    def __init__(
        self, manifest: Manifest, fleet: Fleet, store: RunStore | None, audit: Audit = NO_AUDIT
    ) -> None:
        self.auth = manifest.portal.server.auth
        self.fleet = fleet
        self.store = store
        self.audit = audit
        key = manifest.portal.runs.key
        self.seal = SignInSeal(key.get_secret_value()) if key else None

    def spec(self, upstream: str) -> HttpUpstream | None:
        """The section of an upstream at which people sign in; None for any other name."""
        spec = self.fleet.spec(upstream)
        return spec if isinstance(spec, HttpUpstream) and spec.is_per_caller else None

    def person(self, upstream: str, caller: Caller) -> Person | None:
        """Whose credentials the call of an upstream uses; None for the portal's. Raises UpstreamCallerError."""
        is_named = self.fleet.people.names_callers(upstream)
        if self.spec(upstream) is None and not is_named:
            return None
        if caller.claims is not None:
            return Person(caller.run_owner, dict(caller.claims))
        if self.auth is None or (caller == LOCAL and not is_named):
            return None
        raise UpstreamCallerError(
            f"upstream {upstream!r} needs to know which person calls, and nobody signed in"
        )

    def logins(self, upstream: str, owner: str) -> PersonLogins:
        """The person's login. Raises UpstreamUnavailableError: there is no store for it, or nobody signs in there."""
        if self.store is None:
            why = "logins of people need the store of runs, which cannot be used; the portal's log says why"
            raise UpstreamUnavailableError(f"upstream {upstream!r}: {why}")
        spec = self.spec(upstream)
        if spec is None:  # a reload has changed it
            raise UpstreamUnavailableError(f"upstream {upstream!r}: nobody signs in there any more")
        return PersonLogins(self.store, upstream, spec.url, owner)

    def link(self, upstream: str, owner: str) -> str:
        """Where this person signs in at an upstream. It is of no use to anybody else."""
        assert self.auth is not None and self.seal is not None, "the manifest was refused otherwise"
        return f"{self.auth.base_url}{PATH}/start/{self.seal.close('link', upstream, owner)}"
