"""What the other side of an HTTP call says when it refuses: how long to wait, and a little of its own words. Pure.

One reading for every platform, HTTP agent and callback, so that nobody is called again too soon or never again.
"""

import math
import re
from email.utils import parsedate_to_datetime

SHORTEST_MS = 500
"""Half a second: short enough for a person who waits, long enough that tries do not become a storm."""
LONGEST_MS = 3_600_000
"""An hour: platforms that ask for more mean "much later", and a mistyped number must not silence a chat for years."""
EXCERPT = 300
"""Characters: enough for one sentence of an error, too few to copy a conversation into a log."""

# Nine digits are thirty years. More are a mistake, and thousands of them are more than `int` reads.
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)


def retry_after_ms(value: object, default_ms: int, now: int | None = None) -> int:
    """The wait that `value` asks for, between half a second and an hour; `default_ms` if it asks for none.

    `value` is the text of a Retry-After header, or a number of seconds from a JSON body; anything else asks for
    nothing. A header may also name a date, which only counts for a caller that says what time it is.
    """
    wait_ms = _seconds_ms(value)
    if wait_ms is None and isinstance(value, str) and now is not None:
        wait_ms = _until_ms(value, now)
    return default_ms if wait_ms is None else round(min(max(wait_ms, SHORTEST_MS), LONGEST_MS))


def _seconds_ms(value: object) -> float | None:
    if isinstance(value, str):
        text = value.strip()
        return float(text) * 1000 if _SECONDS.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # An integer too large for a float is still a wish for a long wait.
    seconds = min(value, LONGEST_MS)
    return seconds * 1000 if seconds >= 0 and not math.isnan(seconds) else None


def _until_ms(value: str, now: int) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp() * 1000 - now
    except (ValueError, OverflowError):
        return None


def excerpt(words: object) -> str:
    """The beginning of what the other side wrote, on one line; "" if it wrote nothing."""
    if isinstance(words, bytes):
        words = words[: 4 * EXCERPT].decode("utf-8", "replace")
    return " ".join(words.split())[:EXCERPT] if isinstance(words, str) else ""
