"""Fields of structs that people build by hand: of their type and within their limits, or a sentence that says what is
allowed. Pure.

msgspec checks what it decodes, and nothing that is built in Python: `Rules(silence_ms="5")` would pass, and fail much
later, in a store.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

UNITS = {"_ms": " of milliseconds", "_bytes": " of bytes"}


def check_fields(struct: msgspec.Struct) -> None:
    """Raises ValueError that names the first field whose value is not allowed, and what is."""
    for name, kind in _fields(type(struct)):
        value = getattr(struct, name)
        if not _fits(value, kind):
            raise ValueError(f"{name} = {value!r}: expected {allowed(name, kind)}.")


def check_values(kind: type[msgspec.Struct], values: Mapping[str, Any]) -> None:
    """The same for values of some fields, by name. Raises ValueError for a name that is no field, too."""
    kinds = dict(_fields(kind))
    for name, value in values.items():
        if name not in kinds:
            raise ValueError(f"{name}: there is no such field; there are: {', '.join(kinds)}.")
        if not _fits(value, kinds[name]):
            raise ValueError(f"{name} = {value!r}: expected {allowed(name, kinds[name])}.")


def allowed(name: str, kind: Any) -> str:
    """What a value of this name and type may be, in words."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(bare) is Literal:
        return "one of " + ", ".join(f'"{value}"' for value in get_args(bare) if value)
    if bare is bool:
        return "true or false"
    if bare not in (int, float):
        return "a list of texts" if get_origin(bare) is tuple else "a text"
    unit = next((word for ending, word in UNITS.items() if name.endswith(ending)), "")
    return f"{'an integer' if bare is int else 'a number'}{unit}" + "".join(
        _range(note) for note in notes_of(kind) if note.ge is not None
    )


def notes_of(kind: Any) -> list[msgspec.Meta]:
    """What a type says about its values, beside what they are."""
    return [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, msgspec.Meta)]


def _range(bounds: msgspec.Meta) -> str:
    return f", {bounds.ge} or more" if bounds.le is None else f" from {bounds.ge} to {bounds.le}"


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple(_annotated(kind))


def _annotated(kind: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
    types = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        yield field.name, types[field.name]


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
