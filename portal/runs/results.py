"""Results that did not fit into an answer, kept behind a handle for later scripts."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio.to_thread
import structlog
from pydantic_core import from_json, to_json

from manifests.json_value import Json
from portal.base.errors import RunsError
from portal.records.store.records import QuotaError, StoreError, ambiguous
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from sandbox_runtime.fair_queue import Turns
from sandbox_runtime.guest_json import encode

log = structlog.get_logger()

MAX_KEPT_BYTES: Final = 64 << 20
"""A longer value is not kept."""

MAX_CONTEXT: Final = 2_000
MAX_HITS: Final = 100


@dataclass(eq=False)
class KeptResults:
    """The kept results of all callers. Each belongs to the owner of its run, for `runs.keep_days`."""

    store: RunStore | None
    mask: Callable[[str], str]
    _turns: Turns = field(default_factory=partial(Turns, 1))

    async def keep(
        self, run: str, part: str, owner: str, value: Json, sources: Sequence[str] | None
    ) -> str | None:
        """Keep a part of a run's answer. Returns its handle, always the same; None if it cannot be kept.

        Raises QuotaError.
        """
        if self.store is None:
            return None
        # One at a time: many threads that mask and compress would slow down everything else.
        async with self._turns.turn(owner):
            text = await anyio.to_thread.run_sync(lambda: self.mask(encode(value).decode()).encode())
            if len(text) > MAX_KEPT_BYTES:
                return None
            sealed = await anyio.to_thread.run_sync(self.store.seal.close, text)
        # The handle is unguessable, because the run's id is.
        handle = f"kept_{hashlib.sha256(f'{run} {part}'.encode()).hexdigest()[:32]}"
        keep = partial(RunTables.keep, handle=handle, owner=owner, value=sealed, sources=sources)
        try:
            await self.store.write(keep)
        except QuotaError:
            raise
        except StoreError as error:
            log.error("result_not_kept", error=str(error))
            return None
        return handle

    async def recall(self, handle: Json, owner: str, carry: Callable[..., object]) -> Json:
        """The value behind a handle or a unique prefix of one. `carry` gets its sources before; None if unknown.

        Raises RunsError: the caller has no such result.
        """
        if isinstance(handle, str) and self.store is not None:
            ids = await self.store.read(partial(RunTables.handles, written=handle, owner=owner))
            if len(ids) > 1:
                raise RunsError(*ambiguous("handle", handle, ids))
            found = await self.store.read(partial(RunTables.kept, handle="".join(ids), owner=owner))
            if found is not None:
                carry(found[1])
                return from_json(found[0])
        raise RunsError(
            "unknown_handle",
            f"there is no kept result {str(handle)[:60]!r}: it has expired, or belongs to another caller",
            "Run the script again that returned it.",
        )

    async def search(
        self, arguments: Mapping[str, Json], owner: str, carry: Callable[..., object]
    ) -> list[Json]:
        """Find a text in a kept value, ignoring case: `[{position, text}]`, with some characters around each.

        A value that is not a text is searched as indented JSON.
        """
        wanted, context = arguments.get("text"), arguments.get("context", 200)
        limit = arguments.get("limit", 10)
        is_right = isinstance(wanted, str) and isinstance(context, int) and isinstance(limit, int)
        if not (is_right and wanted and 0 <= context <= MAX_CONTEXT and 1 <= limit <= MAX_HITS):
            what = f"a text, a context from 0 to {MAX_CONTEXT} characters, and a limit from 1 to {MAX_HITS}"
            usage = "Call it as portal.search_text(handle, text), and name the others."
            raise RunsError("invalid_arguments", f"portal.search_text takes {what}", usage)
        value = await self.recall(arguments.get("handle"), owner, carry)
        text = value if isinstance(value, str) else to_json(value, indent=1).decode()
        folded, needle = text.lower(), wanted.lower()
        if len(folded) != len(text):  # a few letters fold to two, which would shift positions
            folded, needle = text, wanted
        hits: list[Json] = []
        at = folded.find(needle)
        while at >= 0 and len(hits) < limit:
            end = at + len(needle)
            hits.append({"position": at, "text": text[max(0, at - context) : end + context]})
            at = folded.find(needle, end)
        return hits
