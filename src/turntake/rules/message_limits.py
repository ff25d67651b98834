"""How much one message may hold, whoever sends it: the same for the HTTP API and for the generic channel. Pure.

The limits keep a message small enough for every store and every event stream; real messages are far below them.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

ID_BYTES = 256  # longer than the ids of every platform we know, and short enough for the index of every store
TEXT_LENGTH = 65_536  # Slack's 40,000 characters are the longest that our platforms take
METADATA_BYTES = 16_384  # facts about a message; whatever is larger belongs behind a link
ATTACHMENTS = 32  # more than an album holds
ITEMS = 100  # a list of ordinary messages stays far below the limit on bodies
DEPTH = 64  # far deeper than what programs write by hand, far from the end of the stack
LATEST_AT = 253_402_300_799_999  # the end of the year 9999

Part = Annotated[str, Meta(max_length=ID_BYTES)]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH)]
Link = Annotated[str, Meta(max_length=4_096)]
Name = Annotated[str, Meta(max_length=1_024)]
Kind = Annotated[str, Meta(min_length=1, max_length=64)]


def check_metadata(metadata: dict[str, Any]) -> None:
    """Raises ValueError if it is nested too deeply, too large, or holds a number that no store keeps."""
    # The message around it and the object itself are the two levels outside.
    if not _is_within(metadata, DEPTH - 2):
        raise ValueError(f"`metadata` is nested too deeply; at most {DEPTH} levels are kept.")
    try:
        size = len(msgspec.msgpack.encode(metadata))
    except OverflowError:
        raise ValueError("`metadata` holds a number beyond 64 bits; send it as text.") from None
    if size > METADATA_BYTES:
        raise ValueError(f"`metadata` is larger than {METADATA_BYTES} bytes; send a reference instead.")


def _is_within(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner: Sequence[object] = list(value.values()) if isinstance(value, dict) else value
    return levels >= 0 and all(_is_within(item, levels - 1) for item in inner)
