"""Instants as text: RFC 3339 outside, milliseconds since 1970 inside."""

from datetime import UTC, datetime
from functools import lru_cache


def rfc3339(ms: int) -> str:
    """For example `2026-11-15T09:30:00.250Z`."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(1_024)  # under load many instants lie in the same few seconds, and datetime is the slow half
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]


def to_ms(text: str) -> int:
    """The instant that an RFC 3339 text names. Raises ValueError if it names none, or leaves out its time zone."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError("An instant needs its time zone, for example 2026-11-15T09:30:00.250Z.")
    return round(parsed.timestamp() * 1000)
