"""What can be set about webhooks."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MEBIBYTE = 1_048_576

Bytes = Annotated[int, Meta(ge=1_024, le=64 * MEBIBYTE)]

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
