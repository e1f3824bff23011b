"""JSON as it goes to clients: without spaces, unicode as it is."""

import json

from manifests.json_value import Json


def compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
