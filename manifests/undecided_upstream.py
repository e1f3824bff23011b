"""An upstream with neither `command` nor `url`, or with both: whatever it was to be, its other keys can be wrong."""

from collections.abc import Iterator, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from manifests.json_value import Json
from manifests.section import Section
from manifests.upstream_sections import UPSTREAM_KIND, HttpUpstream, StdioUpstream


def all_errors(errors: Sequence[ErrorDetails]) -> Iterator[ErrorDetails]:
    """The errors of a manifest, and after each upstream of no kind those of the keys that either kind knows."""
    for error in errors:
        yield error
        value = error["input"]
        if error["type"] == UPSTREAM_KIND and isinstance(value, dict):
            stdio = {key: said for key, said in value.items() if key in StdioUpstream.model_fields}
            http = {
                key: said
                for key, said in value.items()
                if key in HttpUpstream.model_fields.keys() - stdio.keys()
            }
            yield from _errors("command", StdioUpstream, stdio, error)
            yield from _errors("url", HttpUpstream, http, error)


def _errors(
    kind: str, section: type[Section], keys: dict[str, Json], parent: ErrorDetails
) -> Iterator[ErrorDetails]:
    try:
        section.model_validate(keys)
    except ValidationError as wrong:
        for error in wrong.errors(include_url=False):
            if error["loc"] != (kind,) or error["type"] != "missing":
                yield {**error, "loc": (*parent["loc"], kind, *error["loc"])}
