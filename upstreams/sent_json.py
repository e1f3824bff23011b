"""What can be sent: half a surrogate pair cannot be written as UTF-8, and below here would end the connection."""

from pydantic_core import PydanticSerializationError, to_json

from manifests.json_value import Json


def unsendable(value: Json) -> str:
    """Why it cannot be written as JSON; "" if it can."""
    try:
        to_json(value)
    except (PydanticSerializationError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""
