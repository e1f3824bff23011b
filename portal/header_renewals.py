"""Gets headers anew whose secrets come from commands or the keyring, for upstreams that do not take them any more."""

from collections.abc import Mapping
from functools import partial

import anyio.to_thread
import structlog
from pydantic import TypeAdapter, ValidationError

from manifests.constraints import Header
from manifests.manifest import Manifest
from manifests.references import SecretError, Template
from portal.secret_sources import fetch_secrets
from upstreams.http_credentials import HeaderRenewal, RenewedHeaders

log = structlog.get_logger()

_HEADER: TypeAdapter[str] = TypeAdapter(Header)


def header_renewals(manifest: Manifest) -> Mapping[str, HeaderRenewal]:
    """By upstream, of those that have such headers."""
    found: dict[str, dict[str, Template]] = {}
    for path, template in manifest.templates.items():
        match path:
            case ("upstreams", upstream, "headers", header):
                found.setdefault(str(upstream), {})[str(header)] = template
    return {name: partial(_renewed, manifest, name, templates) for name, templates in found.items()}


async def _renewed(
    manifest: Manifest, upstream: str, templates: Mapping[str, Template]
) -> RenewedHeaders | None:
    references = {reference for template in templates.values() for reference in template.references}
    fetched = await anyio.to_thread.run_sync(
        fetch_secrets, references, manifest.folder, abandon_on_cancel=True
    )
    for error in fetched.values():
        if isinstance(error, SecretError):
            log.warning("credentials_not_renewed", upstream=upstream, reason=str(error))
            return None
    secrets = {reference: value for reference, value in fetched.items() if isinstance(value, str)}
    headers = {name: template.filled(secrets) for name, template in templates.items()}
    try:
        for value in headers.values():
            _HEADER.validate_python(value)
    except ValidationError:
        log.warning(
            "credentials_not_renewed", upstream=upstream, reason="they are not fit for an HTTP header"
        )
        return None
    return RenewedHeaders(headers, tuple(secrets.values()))
