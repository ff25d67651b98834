"""JSON that others wrote: it may have any shape, and what is missing or of another kind is simply not there. Pure.

Everything is asked for by a path of names. A path that leads nowhere, or to something of another type, gives nothing:
"", None, {} or []. So a platform's code reads a payload without asking at each step what it got.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from turntake.errors import Unreadable

# Every escape is matched whole, so that the `ud800` in an escaped backslash and `ud800` is left alone.
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\."
)
_LONE = 6
_INTEGERS = range(-(2**63), 2**63)  # what every store and every agent's JSON library can keep
_LONGEST_ID = 10**40  # longer than any id; Python refuses to write out thousands of digits
_EXACT = 2**53  # above it, JavaScript rounds
_DECIMAL = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?", re.ASCII)
_FIRST_IN_MS = 10**12  # as seconds, this would be the year 33658; as milliseconds, it is 2001
_YEAR_10000 = 253_402_300_800_000


def object_in(body: bytes | str) -> dict[str, Any] | None:
    """The object that a body is, or None. Half a character in it, as of an emoji cut in two, becomes U+FFFD."""
    raw = body.encode("utf-8", "replace") if isinstance(body, str) else body
    payload = _decoded(raw)
    if payload is None:
        mended = _ESCAPES.sub(lambda escape: rb"\ufffd" if len(escape[0]) == _LONE else escape[0], raw)
        payload = _decoded(mended) if mended != raw else None
    return payload if isinstance(payload, dict) else None


def read_object(body: bytes | str, platform: str) -> dict[str, Any]:
    """The object that a webhook's body is. Raises Unreadable, since `platform` sends nothing else."""
    payload = object_in(body)
    if payload is None:
        raise Unreadable(f"The body is not a JSON object in UTF-8, which is what {platform} sends.")
    return payload


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


def at(payload: Any, *path: str) -> Any:
    """What lies at the path; None if the path leads nowhere."""
    for name in path:
        payload = payload.get(name) if isinstance(payload, dict) else None
    return payload


def text_at(payload: Any, *path: str) -> str:
    """The text at the path, or a whole number written out, as some platforms write ids; else ""."""
    # The same walk as in `at`, written out: this is called dozens of times for each message.
    for name in path:
        if not isinstance(payload, dict):
            return ""
        payload = payload.get(name)
    if isinstance(payload, str):
        return payload
    is_id = isinstance(payload, int) and not isinstance(payload, bool) and abs(payload) < _LONGEST_ID
    return str(payload) if is_id else ""


def texts_at(payload: Any, *path: str) -> list[str]:
    """The texts in the list at the path, and whole numbers written out; what else is in it is left out."""
    value = at(payload, *path)
    texts = (text_at(item) for item in value) if isinstance(value, list) else ()
    return [text for text in texts if text]


def object_at(payload: Any, *path: str) -> dict[str, Any]:
    """The object at the path, or {}."""
    value = at(payload, *path)
    return value if isinstance(value, dict) else {}


def objects_at(payload: Any, *path: str) -> list[dict[str, Any]]:
    """The objects in the list at the path; what else is in it is left out."""
    value = at(payload, *path)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def integer_at(payload: Any, *path: str) -> int | None:
    """The whole number at the path, if 64 bits hold it."""
    return integer_in(at(payload, *path))


def integer_in(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _INTEGERS else None


def number_at(payload: Any, *path: str) -> float | None:
    """The number at the path, whole or not, if JSON carries it on without rounding."""
    value = at(payload, *path)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_EXACT < value < _EXACT:
        return None
    return value


def time_at(payload: Any, *path: str) -> int | None:
    """The instant at the path in milliseconds: see `time_in`."""
    return time_in(at(payload, *path))


def time_in(value: object) -> int | None:
    """An instant in milliseconds, however it was written: seconds or milliseconds, a number, a text or ISO 8601.

    None for anything else, and for 0, by which some platforms say that they do not know.
    """
    if isinstance(value, str):
        ms = _time_in_text(value.strip())
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _YEAR_10000:
        return None
    else:
        ms = int(value) if value >= _FIRST_IN_MS else int(value * 1000)
    return ms if ms is not None and 0 < ms < _YEAR_10000 else None


def _time_in_text(text: str) -> int | None:
    if match := _DECIMAL.fullmatch(text):
        whole, digits = int(match[1]), match[2] or ""
        # Digit by digit, since a float of Slack's "1771442483.001000" may be a millisecond off.
        return whole if whole >= _FIRST_IN_MS else whole * 1000 + int(f"{digits}000"[:3])
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    zoned = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return round(zoned.timestamp() * 1000)


def named_texts(payload: Any, names: Iterable[str]) -> dict[str, str]:
    """Those of the named texts that are there."""
    return {name: text for name in names if (text := text_at(payload, name))}


def named_facts(payload: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """Those of the named texts and whole numbers that are there, under the names that we give them."""
    values = {ours: at(payload, theirs) for theirs, ours in names.items()}
    return {name: value for name, value in values.items() if isinstance(value, str) or integer_in(value) is not None}


def present(**facts: Any) -> dict[str, Any]:
    """Those of the facts that say something; 0 does, and False, "", None and empty collections do not."""
    return {name: value for name, value in facts.items() if value or (value == 0 and value is not False)}
