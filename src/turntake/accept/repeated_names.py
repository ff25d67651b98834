"""No field twice in one JSON object: a gateway may check the first of two values while we take the last. Pure.

How this works: to read every body a second time would cost as much as reading it once. A field that is there twice is
written twice, so it is enough to count how often each name is written; only if one is written more often than there are
objects, or if names may be written with escapes, the body is read again to know.
"""

import json
from typing import Any

import msgspec

from turntake.errors import Problem


class FieldNames:
    """The fields of one kind of body."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._names = frozenset(field.encode_name for field in msgspec.structs.fields(kind))
        self._quoted = tuple(f'"{name}"'.encode() for name in self._names)

    def refuse_repeated(self, body: bytes, objects: int = 1) -> None:
        """Raises Problem if one of the `objects` in a body, which was read without error, has a field twice."""
        if b"\\u" in body or any(body.count(name) > objects for name in self._quoted):
            # Numbers are not needed, and huge ones would be slow to read or refused.
            json.loads(body, object_pairs_hook=self._check, parse_int=str, parse_float=str)

    def _check(self, pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen and name in self._names:
                raise Problem(400, f"`{name}` is there twice; send each field once.")
            seen.add(name)
