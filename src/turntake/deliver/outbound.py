"""The port: how an answer leaves for the person."""

from abc import ABC, abstractmethod

from turntake.rules.key import ConversationKey


class Outbound(ABC):
    """Takes replies to the person, through the channel the messages came in by."""

    @abstractmethod
    def leads_out(self, key: ConversationKey) -> bool:
        """Whether a reply to this conversation goes anywhere. If not, it is kept with its turn, and that is all."""

    @abstractmethod
    async def send(self, key: ConversationKey, turn_id: str, index: int, text: str) -> None:
        """Sends one reply. `turn_id` and `index` together are the same on every try, so receivers can tell.

        Raises GiveUp if it never can be sent, anything else for a failure that may pass.
        """

    async def aclose(self) -> None:
        """Releases connections, if there are any."""
        return None


class Kept(Outbound):
    """Replies stay with their turn: readable through the API and the event stream."""

    def leads_out(self, key: ConversationKey) -> bool:
        return False

    async def send(self, key: ConversationKey, turn_id: str, index: int, text: str) -> None:
        return None
