"""JSON that others wrote: it may have any shape, and what is missing or of another kind is simply not there."""

import re
from typing import Any

import msgspec

# Every escape is matched whole, so that the `ud800` in an escaped backslash and `ud800` is left alone.
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\."
)
_LONE = 6


def object_in(body: bytes | str) -> dict[str, Any] | None:
    """The object that a body is, or None. Half a character in it, as of an emoji cut in two, becomes U+FFFD."""
    raw = body.encode("utf-8", "replace") if isinstance(body, str) else body
    found = _decoded(raw)
    if found is None:
        mended = _ESCAPES.sub(lambda escape: rb"\ufffd" if len(escape[0]) == _LONE else escape[0], raw)
        found = _decoded(mended) if mended != raw else None
    return found if isinstance(found, dict) else None


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


def at(found: Any, *path: str) -> Any:
    """What lies at the path; None if the path leads nowhere."""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def text_at(found: Any, *path: str) -> str:
    """The text at the path, or a whole number written out, as some senders write ids; else ""."""
    value = at(found, *path)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def object_at(found: Any, *path: str) -> dict[str, Any]:
    value = at(found, *path)
    return value if isinstance(value, dict) else {}


def objects_at(found: Any, *path: str) -> list[dict[str, Any]]:
    """The objects in the list at the path; what else is in it is left out."""
    value = at(found, *path)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
