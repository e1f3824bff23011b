"""One function of a namespace with all its text, and what it was made of, so that it need not be made again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from portal.library.function import Function
from portal.library.function_draft import FunctionDraft
from portal.library.namespace_types import NamespaceTypes
from portal.library.plain_text import one_line
from portal.library.rendering import (
    LONGEST_SIGNATURE,
    MISMATCHED,
    OBSERVED,
    definition,
    documentation,
    shown_definition,
    signature,
)
from portal.library.type_definitions import definition_text
from portal.library.type_expressions import Spelling, Type, names_in, renamed, render

NOT_GRANTED: Final = "(not granted)"
"""How the summary and the docstring of a function begin that may not be called."""

LONGEST_REFUSAL: Final = 400
"""Characters told of why it may not be called, and what would grant it."""


@dataclass(frozen=True, eq=False)
class CompiledFunction:
    """A draft, how its types are called in its namespace, and what became of it."""

    draft: FunctionDraft
    type_names: Mapping[str, str]
    spelling: Spelling
    function: Function
    text: str
    """The function as it stands in its namespace's module."""
    observed_types: tuple[str, ...]

    def is_of(self, draft: FunctionDraft, type_names: Mapping[str, str], spelling: Spelling) -> bool:
        """Whether compiling this draft would give the same again."""
        return self.draft is draft and self.type_names == type_names and self.spelling == spelling


def compiled_function(
    place: tuple[str, str],
    draft: FunctionDraft,
    types: NamespaceTypes,
    type_names: Mapping[str, str],
    spelling: Spelling,
) -> CompiledFunction:
    """Give a draft its text. `place` is its upstream and namespace, `type_names` what its types are called there."""
    settled = _settled(draft, type_names)
    seen = types.needed(names_in(settled.returns)) if settled.is_observed else ()
    return CompiledFunction(
        draft=draft,
        type_names=type_names,
        spelling=spelling,
        function=_function(place, settled, types),
        text=_definition(settled, spelling),
        observed_types=tuple(each.name for each in seen),
    )


def _settled(draft: FunctionDraft, names: Mapping[str, str]) -> FunctionDraft:
    """The draft with the names that its types have in the namespace."""
    if not names:
        return draft
    return replace(
        draft,
        parameters=tuple(replace(each, type=renamed(each.type, names)) for each in draft.parameters),
        others=None if draft.others is None else renamed(draft.others, names),
        returns=renamed(draft.returns, names),
    )


def _function(place: tuple[str, str], draft: FunctionDraft, types: NamespaceTypes) -> Function:
    upstream, namespace = place
    qualified = f"{namespace}.{draft.name}"
    needed = types.needed(dict.fromkeys(name for type_ in _shown_types(draft) for name in names_in(type_)))
    return Function(
        namespace=namespace,
        name=draft.name,
        upstream=upstream,
        tool=draft.tool.name,
        parameters=draft.parameters,
        returns=render(draft.returns),
        summary=f"{NOT_GRANTED} {draft.summary}".strip() if draft.refusal else draft.summary,
        description=draft.description,
        signature=signature(qualified, draft.parameters, draft.others, draft.returns, LONGEST_SIGNATURE),
        types=tuple(map(definition_text, needed)),
        definition=_shown_definition(draft),
        recorded=draft.tool,
        wraps_result=draft.wraps_result,
        takes_others=draft.others is not None,
        is_observable=draft.is_observable,
        is_observed=draft.is_observed,
    )


def _shown_types(draft: FunctionDraft) -> Iterator[Type]:
    yield from (each.type for each in draft.parameters)
    if draft.others is not None:
        yield draft.others
    yield draft.returns


def _shown_definition(draft: FunctionDraft) -> str:
    body = documentation(_told(draft), (), draft.example)
    return shown_definition(
        draft.name, draft.parameters, draft.others, draft.returns, body, remark=_remark(draft)
    )


def _definition(draft: FunctionDraft, spelling: Spelling) -> str:
    return definition(
        draft.name,
        draft.parameters,
        draft.others,
        draft.returns,
        documentation(_told(draft), draft.parameters, draft.example),
        spelling,
        remark=_remark(draft),
    )


def _remark(draft: FunctionDraft) -> str:
    if draft.is_observed:
        return OBSERVED
    return MISMATCHED + draft.mismatch if draft.mismatch else ""


def _told(draft: FunctionDraft) -> str:
    if not draft.refusal:
        return draft.description
    return f"{NOT_GRANTED} {one_line(draft.refusal, LONGEST_REFUSAL)}\n\n{draft.description}"
