"""How the portal gets tokens for an upstream whose owner wants OAuth."""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from manifests.constraints import Argument, Url, refusal
from manifests.section import Section

ClientText: TypeAlias = Annotated[Argument, Field(min_length=1, max_length=4096)]


class OAuthSettings(Section):
    """OAuth of an upstream that is reached by URL. All of it is optional: `oauth: {}` is enough for most."""

    grant: Literal["authorization_code", "client_credentials"] = Field(
        default="authorization_code",
        description=(
            "authorization_code (the default): you sign in once with `mcp-code-portal login NAME`. client_credentials: "
            "the portal signs in as itself, with client_id and client_secret."
        ),
    )
    client_id: ClientText | None = Field(
        default=None,
        description=(
            "The client that you registered at the authorization server. Default: the portal registers one at each "
            "login, if the server allows that."
        ),
    )
    client_secret: ClientText | None = Field(
        default=None, repr=False, description="Its secret, if it has one. Write a reference, not the secret."
    )
    client_metadata_url: Url | None = Field(
        default=None,
        description="An https:// document that describes the client, for servers that take its URL as the client_id.",
    )
    issuer: Url | None = Field(
        default=None,
        description=(
            "The authorization server, as it names itself. Needed with client_secret, which goes to no other. Default: "
            "the one that the upstream names."
        ),
    )
    scope: Annotated[Argument, Field(max_length=2000)] | None = Field(
        default=None,
        description="What to ask for, separated by spaces. Default: what the upstream says that it needs.",
    )
    redirect_port: Annotated[int, Field(ge=1, le=65_535)] | None = Field(
        default=None,
        description=(
            "The port of http://127.0.0.1:PORT/callback, to which the browser comes back at a login. Needed when the "
            "client was registered with one. Default: any that is free."
        ),
    )
    keep_in: Literal["file", "keyring"] = Field(
        default="file",
        description="Where tokens are kept: in a file of yours alone (the default) or in the system keyring.",
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.grant == "client_credentials" and not (self.client_id and self.client_secret):
            raise refusal("lacks client_id or client_secret, which client_credentials needs", "Give both.")
        if self.client_secret and not (self.client_id and self.issuer):
            raise refusal(
                "has a client_secret, but no issuer or client_id to go with it",
                "Name the authorization server as issuer: the secret is sent nowhere else.",
            )
        if self.client_metadata_url and (
            self.client_id or not self.client_metadata_url.startswith("https://")
        ):
            raise refusal(
                "has a client_metadata_url that is not https:// or stands beside a client_id", "Keep one."
            )
        return self
