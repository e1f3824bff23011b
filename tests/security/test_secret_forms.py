"""A form that asks to type a secret is refused, however it spells it. One that only mentions a secret is shown."""

import pytest
from mcp_types import ClientCapabilities, ElicitationCapability

from manifests.json_value import Json
from portal.calls.questions import elicitation
from upstreams.questions import QuestionError

CAN_SHOW = ClientCapabilities(elicitation=ElicitationCapability())
TEXT: Json = {"type": "string"}


def show(field: str, asked: Json, message: str = "Please answer") -> None:
    schema = {"type": "object", "properties": {"who": TEXT, field: asked}}
    elicitation("up", {"message": message, "requestedSchema": schema}, lambda text, _: text, CAN_SHOW)


@pytest.mark.parametrize(
    "field",
    ["password", "api_key", "apiKey", "pin", "userPIN", "card_pin", "otp", "OTPCode", "token", "ｔｏｋｅｎ"],
)
def test_field_that_is_named_like_a_secret_is_refused_by_its_name(field: str) -> None:
    with pytest.raises(QuestionError, match="asks for a secret") as refused:
        show(field, TEXT)
    assert (refused.value.code, repr(field) in str(refused.value)) == ("elicitation_refused", True)


@pytest.mark.parametrize(
    "asked",
    [
        {**TEXT, "title": "Your password"},
        {**TEXT, "format": "password"},
        {"type": "integer", "title": "PIN"},
        {**TEXT, "title": "Token", "enum": []},
        {"type": "array", "items": TEXT, "title": "Recovery phrase"},
        {"title": "CVV"},
    ],
)
def test_field_that_is_titled_or_formatted_as_a_secret_is_refused(asked: Json) -> None:
    with pytest.raises(QuestionError, match="'x' asks for a secret"):
        show("x", asked)


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("x", {**TEXT, "description": "Do not give us your phone number, PIN or password"}),
        ("x", {**TEXT, "enum": ["keep the token", "new token"], "default": "new token"}),
        ("rotate_token", {"type": "boolean", "title": "Rotate your token?"}),
        ("token", {**TEXT, "oneOf": [{"const": "a", "title": "A"}]}),
        ("secrets", {"type": "array", "items": {**TEXT, "enum": ["db", "mail"]}}),
        ("max_tokens", {"type": "integer"}),
        ("opinion", {**TEXT, "title": "Spinning", "format": "email"}),
    ],
)
def test_form_that_only_mentions_a_secret_is_shown(field: str, asked: Json) -> None:
    show(field, asked, message="Rotate your token? Never type a password here.")
