"""What an upstream wants of the client's model: off unless the manifest says otherwise, and then bounded."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mcp_types import ClientCapabilities, CreateMessageRequest
from pydantic import ValidationError

from manifests.json_value import Json
from portal.budget.tokens import compact
from portal.passthrough.clean_json import Scrub, clean_json, is_larger
from upstreams.questions import QuestionError

MAX_CHARACTERS: Final = 200_000
"""Of all that is to be read by the model."""

_PASSED_ON: Final = ("messages", "systemPrompt", "temperature", "stopSequences", "modelPreferences")


class SamplingDepths:
    """Requests for samples that are under way, by who is asked and which upstream asks."""

    def __init__(self) -> None:
        self._under_way: defaultdict[tuple[str, str], Counter[object]] = defaultdict(Counter)

    @contextmanager
    def deeper(self, asked: str, upstream: str, script: object, most: int) -> Iterator[None]:
        """Around one sample that is asked for while `script` runs; those of one script are beside one another.

        Nothing says whether those of others are, or it is within them.

        Raises:
            QuestionError: `most` other scripts wait for theirs.
        """
        scripts = self._under_way[asked, upstream]
        if script not in scripts and len(scripts) >= most:
            others = "another script" if most == 1 else f"{most} other scripts"
            raise QuestionError(
                "sampling_refused", f"it samples for {others} of this client already (sampling.depth)"
            )
        scripts[script] += 1
        try:
            yield
        finally:
            scripts[script] -= 1
            if not scripts[script]:
                del scripts[script]
            if not scripts:
                del self._under_way[asked, upstream]


class TokenAllowance:
    """The tokens that one upstream may have sampled for one request."""

    def __init__(self, max_tokens: int) -> None:
        self._left = max_tokens

    def take(self, wanted: Json) -> int:
        """As many as are left of those.

        Raises:
            QuestionError: None are.
        """
        tokens = wanted if isinstance(wanted, int) and wanted > 0 else self._left
        granted = min(int(tokens), self._left)
        if granted <= 0:
            raise QuestionError(
                "sampling_refused", "it has used the tokens that it may sample (sampling.max_tokens)"
            )
        self._left -= granted
        return granted


def sample(
    upstream: str,
    params: dict[str, Json],
    scrub: Scrub,
    client: ClientCapabilities | None,
    allowance: TokenAllowance,
) -> CreateMessageRequest:
    """The request as the client gets it: without tools and context of others, and with no more tokens than are left.

    Raises:
        QuestionError: The client has no model to ask, or it is not to be asked that.
    """
    if client is None or client.sampling is None:
        raise QuestionError("sampling_unsupported", "the client lets nobody use its model")
    if params.get("tools") or params.get("toolChoice"):
        raise QuestionError("sampling_refused", "it wants to give the model tools")
    passed_on = {key: params[key] for key in _PASSED_ON if params.get(key) is not None}
    if is_larger(passed_on, MAX_CHARACTERS):
        raise QuestionError("sampling_refused", "it asks for a sample of too long a text")
    shown = {key: clean_json(value, scrub, MAX_CHARACTERS) for key, value in passed_on.items()}
    prompt = shown.get("systemPrompt")
    shown["systemPrompt"] = f"(Asked for by the MCP server {upstream}.)" + (f" {prompt}" if prompt else "")
    if len(compact(shown)) > MAX_CHARACTERS:
        raise QuestionError("sampling_refused", "it asks for a sample of too long a text")
    shown["maxTokens"] = allowance.take(params.get("maxTokens"))
    request = {"method": "sampling/createMessage", "params": shown}
    try:
        return CreateMessageRequest.model_validate(request, by_name=False)
    except ValidationError as error:
        raise QuestionError("sampling_refused", "it asks in a way that MCP does not know") from error
