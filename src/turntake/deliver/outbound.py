"""The port: how an answer leaves for the person."""

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, nullcontext

from turntake.platforms.replies import Recipient
from turntake.rules.key import ConversationKey


class Outbound(ABC):
    """Takes replies to the person, through the channel the messages came in by."""

    @abstractmethod
    def can_send(self, key: ConversationKey) -> bool:
        """Whether a reply to this conversation goes anywhere. If not, it is kept with its turn, and that is all."""

    @abstractmethod
    async def send(self, to: Recipient, index: int, text: str) -> str:
        """Sends one reply, and returns the platform's id of it, or "" if it has none.

        The turn's id and `index` together are the same on every try, so receivers can tell a repetition.
        Raises GiveUp if it never can be sent, FateUnknown if it may have been, else whatever says that it was not.
        """

    def parts(self, key: ConversationKey, text: str) -> tuple[str, ...]:
        """The reply in pieces that the channel takes, in order."""
        return (text,)

    def composing(self, to: Recipient) -> AbstractAsyncContextManager[None]:
        """Shows the person, for as long as it is entered, that an answer is being written. It never fails."""
        return nullcontext()

    @property
    def sends_unknown_again(self) -> bool:
        """Whether a reply whose fate is unknown is sent again, at the risk of a double; else it counts as sent."""
        return True

    async def aclose(self) -> None:
        """Releases connections, if there are any."""
        return None


class NoOutbound(Outbound):
    """Sends nothing: replies stay with their turn, readable through the API and the event stream."""

    def can_send(self, key: ConversationKey) -> bool:
        return False

    async def send(self, to: Recipient, index: int, text: str) -> str:
        return ""
