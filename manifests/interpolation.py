"""`${NAME}` and `${NAME:-default}` in the strings of a manifest, filled in from the environment or portal.env.

It happens after YAML is read, so that no value can add a key or a line. The default is taken when the
variable is unset or empty, as in a shell; without one an empty variable is an empty string and an unset one
is an error. `$${` stands for a literal `${`; every other `$` is itself.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from manifests.errors import Problem
from manifests.json_value import Json
from manifests.yaml_source import KeyPath, Place

SECTIONS: tuple[KeyPath, ...] = (("upstreams",), ("server",), ("capabilities", "environment"))
"""Where references mean something. What scripts may do depends on the environment only in what they see of it."""

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<has_default>:-(?P<default>[^$]*))?")
_SHOWN = 60


@dataclass
class Interpolation:
    """Fills in references, noting problems and which values now hold something from the environment."""

    environ: Mapping[str, str]
    places: Mapping[KeyPath, Place]
    problems: list[Problem] = field(default_factory=list)
    filled: set[KeyPath] = field(default_factory=set)

    def manifest(self, data: Json) -> Json:
        """The same data with the strings of SECTIONS filled in; keys stay as they are."""
        return self._within(data, ())

    def _within(self, value: Json, path: KeyPath) -> Json:
        if path in SECTIONS:
            return self._value(value, path)
        if isinstance(value, dict) and any(section[: len(path)] == path for section in SECTIONS):
            return {key: self._within(item, (*path, key)) for key, item in value.items()}
        return value

    def _value(self, value: Json, path: KeyPath) -> Json:
        if isinstance(value, dict):
            return {key: self._value(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value(item, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, str) and "${" in value:
            return _REFERENCE.sub(lambda match: self._replacement(match, path), value)
        return value

    def _replacement(self, match: re.Match[str], path: KeyPath) -> str:
        if match[0] == "$${":
            return "${"
        self.filled.add(path)
        inside = _INSIDE.fullmatch(match["inside"]) if match["end"] else None
        if not inside:
            written = match[0] if len(match[0]) <= _SHOWN else match[0][:_SHOWN] + "…"
            hint = "Write ${NAME} or ${NAME:-default}; the default holds no $. A literal ${ is written $${."
            self._note(path, f"{written!r} is not a reference to an environment variable", hint)
            return ""
        name = inside["name"]
        value = self.environ.get(name)
        if inside["has_default"]:
            return value or inside["default"]
        if value is None:
            message = f"the environment variable {name} is not set"
            self._note(
                path, message, f"Set it, here or in portal.env, or give it a default: ${{{name}:-default}}."
            )
        return value or ""

    def _note(self, path: KeyPath, message: str, hint: str) -> None:
        place = self.places[path]
        key = ".".join(map(str, path))
        self.problems.append(Problem(message, place.value_line, place.value_column, hint, key))
