"""The OAuth documents of upstreams and authorization servers: the fields that are used, with URLs kept verbatim.

Source: RFC 9728, 2; RFC 8414, 2; RFC 6749, 5.1; RFC 7591, 3.2.1.
"""

import re
from collections.abc import Callable
from typing import Annotated, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat, ValidationError, ValidationInfo
from pydantic.functional_validators import field_validator


def words(value: object) -> tuple[str, ...]:
    """The words of a text or of a list of texts."""
    if isinstance(value, list | tuple):
        value = " ".join(each for each in value if isinstance(each, str))
    return tuple(re.findall(r"(?<!\S)[!-~]+(?!\S)", value)) if isinstance(value, str) else ()


_Url: TypeAlias = Annotated[str, Field(max_length=2048, pattern=r"^[A-Za-z0-9_.~:/?#\[\]@!$&'()*+,;=%-]+$")]
"""The characters of RFC 3986. Browsers disagree on others, and some control a terminal."""
Secret: TypeAlias = Annotated[str, Field(max_length=16_384, pattern=r"^[ -~]+$")]
"""A refresh token or a client secret. Its length bounds what masking it takes; RFC 6749, A has the characters."""
_Words: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(words)]


class _Document(BaseModel):
    """Required fields decide something, so they must be valid. An invalid optional field counts as absent."""

    @field_validator("*", mode="wrap")
    @classmethod
    def _read(cls, value: object, read: Callable[[object], object], info: ValidationInfo) -> object:
        try:
            return read(value)
        except ValidationError:
            field = cls.model_fields[info.field_name or ""]
            if field.is_required():
                raise
            return field.default


class ResourceMetadata(_Document):
    """Protected resource metadata: the upstream's."""

    resource: _Url
    authorization_servers: Annotated[tuple[_Url, ...], BeforeValidator(words)] = ()
    scopes_supported: _Words = ()


class ServerMetadata(_Document):
    """Authorization server metadata. Without `authorization_endpoint` people cannot sign in."""

    issuer: _Url
    token_endpoint: _Url
    authorization_endpoint: _Url | None = None
    registration_endpoint: _Url | None = None
    revocation_endpoint: _Url | None = None
    scopes_supported: _Words = ()
    grant_types_supported: _Words = ()
    token_endpoint_auth_methods_supported: _Words = ()
    code_challenge_methods_supported: _Words = ()
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


class Token(_Document):
    """The answer of a token endpoint. Its type is ignored: some servers call it `user` or `jwt`."""

    access_token: Annotated[str, Field(min_length=1)]
    expires_in: FiniteFloat | None = None
    scope: _Words = ()
    refresh_token: str | None = None


class Registration(_Document):
    client_id: Annotated[str, Field(min_length=1)]
    client_secret: Secret | None = None
    token_endpoint_auth_method: str | None = None
    redirect_uris: _Words = ()
