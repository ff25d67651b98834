"""A channel that keeps what it was given, and breaks when told to."""

from turntake import ConversationKey
from turntake.deliver.outbound import Outbound
from turntake.platforms.replies import Recipient


class Postbox(Outbound):
    """Its ids of what it took are `sent-0`, `sent-1` and so on."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.sent: list[str] = []
        self.failures = 0

    def can_send(self, key: ConversationKey) -> bool:
        return True

    async def send(self, to: Recipient, index: int, text: str) -> str:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the platform is down")
        self.places.append(index)
        self.sent.append(text)
        return f"sent-{index}"
