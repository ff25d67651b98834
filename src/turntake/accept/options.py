"""What can be set about webhooks."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from turntake.clock import DAY_MS

MEBIBYTE = 1_048_576

Bytes = Annotated[int, Meta(ge=1_024, le=64 * MEBIBYTE)]

Age = Annotated[int, Meta(ge=0, le=3_650 * DAY_MS)]

Delivery = Literal["all", "failed", "none"]
"""Which reports of platforms are noted about replies that left."""

Groups = Literal["person", "group"]
"""Who has a buffer in a group chat: each person, or the group."""


class WebhookOptions(msgspec.Struct, frozen=True):
    """`[webhooks]`"""

    # What Meta says it may send.
    body_bytes: Annotated[Bytes, Meta(description="The longest webhook body that is accepted.")] = 3 * MEBIBYTE
    groups: Annotated[
        Groups,
        Meta(description="In group chats, whether each person's messages or the whole group's wait together."),
    ] = "person"
    delivery: Annotated[
        Delivery,
        Meta(description="Which reports about replies are noted with their turns: all, those of failures, or none."),
    ] = "all"
    # Platforms send again for up to 7 days, and ids are remembered for 8: what is older is a replay, or of no use.
    oldest_ms: Annotated[
        Age, Meta(description="Messages that a platform dates further back are ignored; 0 takes any age.")
    ] = 8 * DAY_MS
