"""Sends an answer as the service does: split, and each part called for."""

from turntake.deliver.replies import Replies
from turntake.platforms.replies import Recipient


async def send_and_close(out: Replies, to: Recipient, text: str, first: int = 0) -> None:
    """All parts of the text in order, numbered from `first`."""
    try:
        for index, part in enumerate(out.parts(to.key, text), first):
            await out.send(to, index, part)
    finally:
        await out.aclose()
