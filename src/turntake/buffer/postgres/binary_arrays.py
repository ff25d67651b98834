"""Arrays on their way to the server, in its binary form: many rows at once for little more than the price of one."""

from collections.abc import Sequence
from itertools import chain, repeat
from struct import Struct, pack

from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format

_HEADER = Struct(">iiIii")  # dimensions, whether there are NULLs, the element's type, how many, the first's number
_EMPTY = Struct(">iiI")
_LENGTH = Struct(">i").pack
_NULL = _LENGTH(-1)


class Numbers(list[int | None]):
    """An array of bigint."""


class Texts(list[str]):
    """An array of text."""


class Bodies(list[bytes | None]):
    """An array of bytea."""


class _ArrayDumper(Dumper):
    format = Format.BINARY
    element = ""

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self.oid = types[self.element].array_oid
        self._element_oid = types[self.element].oid

    def _array(self, count: int, parts: Sequence[bytes]) -> Buffer:
        if not count:
            return _EMPTY.pack(0, 0, self._element_oid)
        return b"".join((_HEADER.pack(1, 1, self._element_oid, count, 1), *parts))


class NumbersDumper(_ArrayDumper):
    element = "int8"

    def dump(self, obj: Numbers) -> Buffer:
        if None in obj:
            return self._array(len(obj), [_NULL if n is None else pack(">iq", 8, n) for n in obj])
        interleaved = chain.from_iterable(zip(repeat(8), obj))
        return self._array(len(obj), [pack(">" + "iq" * len(obj), *interleaved)])


class BodiesDumper(_ArrayDumper):
    element = "bytea"

    def dump(self, obj: Bodies) -> Buffer:
        parts = [part for body in obj for part in ((_NULL,) if body is None else (_LENGTH(len(body)), body))]
        return self._array(len(obj), parts)


class TextsDumper(_ArrayDumper):
    element = "text"

    def dump(self, obj: Texts) -> Buffer:
        parts = [part for raw in map(str.encode, obj) for part in (_LENGTH(len(raw)), raw)]
        return self._array(len(obj), parts)


def register(context: AdaptContext) -> None:
    """Lets a connection take these arrays."""
    assert context.adapters is not None
    for cls, dumper in ((Numbers, NumbersDumper), (Bodies, BodiesDumper), (Texts, TextsDumper)):
        context.adapters.register_dumper(cls, dumper)
