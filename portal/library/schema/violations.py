"""Where and how a value breaks a sound schema, said so that the next try is right.

A validator of its own rather than `jsonschema`'s, because here both sides are strangers: the upstream writes
the schema, a script writes the value. This one counts its steps, so that references that fan out cannot hold
the portal up; it never prints a value whole; `uniqueItems` is linear. Tests hold it against `jsonschema`.
"""

from manifests.json_value import Json
from portal.library.schema.inspection import MAX_STEPS, Inspection, Violation
from portal.library.schema.rules import RULES
from portal.library.schema.sound_schema import SoundNode, SoundSchema


def violations(schema: SoundSchema, value: Json, max_steps: int = MAX_STEPS) -> list[Violation]:
    """At most five reasons why the value does not fit; none if it fits, or is too deep or too large to tell."""
    return _found(schema, schema.root, value, max_steps)


def admits(schema: SoundSchema, node: SoundNode, value: Json) -> bool:
    """Whether the value fits one subschema of a schema."""
    return not _found(schema, node, value)


def _found(schema: SoundSchema, node: SoundNode, value: Json, max_steps: int = MAX_STEPS) -> list[Violation]:
    inspection = Inspection(schema.definitions, RULES, [max_steps])
    try:
        inspection.inspect(node, value, ())
    except RecursionError:  # comparing very deep values; the upstream checks what it gets anyway
        return []
    return inspection.found
