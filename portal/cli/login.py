"""`mcp-code-portal login` and `logout`."""

from argparse import Namespace
from contextlib import closing, suppress
from pathlib import Path

from manifests.manifest import Manifest
from manifests.portal_manifest import HttpUpstream, OAuthSettings
from portal.base.caller import Bearer
from portal.cli.terminal import Terminal, open_browser, unknown_name
from portal.identity.accounts import LOGIN, open_login
from portal.identity.sign_in import identity
from portal.records.store.places import open_tables, place_of
from upstreams.oauth.authorization_server import OAuthError
from upstreams.oauth.login import log_in, revoke
from upstreams.oauth.tokens import Login


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Sign in to an upstream, or out of it. Exits with 2 if the upstream takes no login, 1 if it fails."""
    name, upstreams = options.upstream, manifest.portal.upstreams
    spec = upstreams.get(name)
    if spec is None:
        terminal.error(unknown_name("upstream", name, upstreams))
        return 2
    if not isinstance(spec, HttpUpstream) or spec.oauth is None:
        terminal.error(
            f"the upstream {name!r} has no `oauth` in the manifest. If it requires OAuth, write: oauth: {{}}"
        )
        return 2
    if spec.oauth.grant == "client_credentials":
        terminal.error(f"the portal signs in to {name!r} by itself, with its client_id and client_secret")
        return 2
    tenants = manifest.portal.tenants
    try:
        if options.is_out and options.person is not None:
            found = _persons_logins(manifest, name, options.person, options.tenant)
            if not found and tenants and tenants.claim and options.tenant is None:
                terminal.error("people belong to tenants here (tenants.claim): add --tenant NAME")
                return 2
            return max(
                [await _revoked(name, spec, each, terminal) for each in found] or [_none(name, terminal)]
            )
        if options.is_out:
            return await _out(manifest, name, spec, terminal)
        return await _in(manifest, name, spec, options.browser, terminal)
    except OAuthError as error:
        terminal.error("; ".join(filter(None, (f"upstream {name!r}: {error}", error.remedy))))
        return 1


async def _in(manifest: Manifest, name: str, spec: HttpUpstream, may_browse: bool, terminal: Terminal) -> int:
    def show(issuer: str, url: str) -> None:
        # Show the issuer before the person types a password: an upstream can name any authorization server.
        terminal.note(f"To sign in to {name!r} at {issuer}, open this in a browser on this machine:")
        terminal.result(url)
        if may_browse:
            open_browser(url)

    login = await log_in(spec, show)
    async with open_login(manifest, name, spec) as store, store.locked():
        await store.save(login)
    scope = f", for {login.scope}" if login.scope else ""
    terminal.note(f"signed in to {name!r} at {login.issuer}{scope}")
    terminal.note("running portals use this login when they next need a token")
    if login.refresh_token is None:
        terminal.note("there is no refresh token: sign in again when the token expires")
    return 0


async def _out(manifest: Manifest, name: str, spec: HttpUpstream, terminal: Terminal) -> int:
    login = None
    async with open_login(manifest, name, spec) as store, store.locked():
        try:
            login = await store.load()
        except OAuthError as error:  # an unreadable login can still be deleted
            terminal.note(f"the stored login cannot be revoked: {error}")
        await store.delete()
    return _none(name, terminal) if login is None else await _revoked(name, spec, login, terminal)


def _none(name: str, terminal: Terminal) -> int:
    terminal.note(f"not signed in to {name!r}")
    return 0


def _persons_logins(manifest: Manifest, name: str, subject: str, tenant: str | None) -> list[Login]:
    """Delete a person's logins, of any profile, from the store of runs, and return them."""
    auth = manifest.portal.server.auth
    if auth is None:
        return []
    place, found = place_of(manifest), []
    if isinstance(place, Path) and not place.exists():
        return []
    with closing(open_tables(place, manifest)) as file, file.transaction(is_lasting=True):
        for profile in (None, *manifest.portal.profiles):
            owner = Bearer.of("", identity(auth.issuer, subject), profile, tenant).run_owner
            if (kept := file.get(LOGIN, owner, name)) is not None:
                file.drop(LOGIN, owner, name)
                # Empty, as a lock on a missing login leaves it, or of another version: it is only deleted.
                with suppress(ValueError):
                    found.append(Login.model_validate_json(kept))
    return found


async def _revoked(name: str, spec: HttpUpstream, login: Login, terminal: Terminal) -> int:
    """Revoke the tokens of a deleted login."""
    try:
        is_revoked = await revoke(login, spec.oauth or OAuthSettings())
    except OAuthError as error:
        terminal.error(f"the tokens were deleted here, but not revoked: {error}")
        return 1
    lasts = (
        "; the authorization server does not support revocation, so they are valid until they expire, and a portal "
        "that runs may use them until then"
    )
    terminal.note(f"signed out of {name!r}: the tokens are deleted {'and revoked' if is_revoked else lasts}")
    return 0
