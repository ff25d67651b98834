"""No field twice in one JSON object: a gateway may check the first of two values while we take the last. Pure.

How this works: to read every body a second time would cost as much as reading it once. So the colons are counted, of
which there are at least as many as names, and compared with the number of different names. If both are the same, no
name is there twice. If not, as with a colon in a text, only those after a quote are counted, which takes longer. If
that is not the same either, as with objects inside, the body is read again.
"""

import json
import re
from typing import Any

import msgspec

from turntake.errors import Problem
from turntake.rules.message_limits import DEPTH

_COLONS = re.compile(rb'"[ \t\r\n]*:')
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[dict[str, msgspec.Raw]])


class FieldNames:
    """The fields of one kind of body."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._names = frozenset(field.encode_name for field in msgspec.structs.fields(kind))

    def refuse_repeated(self, body: bytes) -> None:
        """Raises Problem if an object in a body, which was read without error, has one of the fields twice."""
        found = _objects.decode(body)
        different = len(found) if isinstance(found, dict) else sum(map(len, found))
        if different != body.count(b":") and different != len(_COLONS.findall(body)):
            self._read_again(body)

    def _read_again(self, body: bytes) -> None:
        try:
            # Numbers are not needed, and huge ones would be slow to read or refused.
            json.loads(body, object_pairs_hook=self._check, parse_int=str, parse_float=str)
        except RecursionError:
            raise Problem(400, f"The JSON is nested too deeply; at most {DEPTH} levels are read.") from None

    def _check(self, pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen and name in self._names:
                raise Problem(400, f"`{name}` is there twice; send each field once.")
            seen.add(name)
