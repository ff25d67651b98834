"""The port: a platform that is listened to over a connection of ours, where it has more to say than it posts."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence

from turntake.platforms.channel import ChatEvent

OnEvents = Callable[[Sequence[ChatEvent]], Awaitable[None]]


class Listener(ABC):
    """One account at one platform. Started where messages are accepted, if every option for listening is set."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` are those of the channel's options by name; options that are not set have their defaults."""
        self._values = values

    @abstractmethod
    async def listen(self, on_events: OnEvents) -> None:
        """Connects and passes what happens to `on_events`, in order, for ever; a lost connection is made again.

        Once `on_events` returns, the events are stored. If it raises StoreUnavailable, they must be passed again.
        Raises ConfigurationError if the platform refuses our credentials for good.
        """
