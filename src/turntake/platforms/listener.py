"""The port: a platform that is listened to over a connection of ours, since it calls nobody."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar

from turntake.platforms.channel import ChatEvent, Option

OnEvents = Callable[[Sequence[ChatEvent]], Awaitable[None]]


class Listener(ABC):
    """One account at one platform. Started where messages are accepted, if every option with a use is set."""

    options: ClassVar[Sequence[Option]] = ()

    def __init__(self, given: Mapping[str, str]) -> None:
        """`given` are the channel's options and the listener's own, those that are not set with their defaults."""
        self._values = given

    @abstractmethod
    async def listen(self, on_events: OnEvents) -> None:
        """Connects and tells `on_events` what happens, in order, for ever; a lost connection is made again.

        Once `on_events` returns, the events are stored. If it raises StoreUnavailable, they are told again.
        Raises ConfigurationError if the platform refuses our credentials for good.
        """
