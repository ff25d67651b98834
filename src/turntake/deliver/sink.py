"""The port: where a turn goes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from turntake.deliver.turn import Turn
from turntake.rules.records import Claim


class Answer(msgspec.Struct, frozen=True):
    """The agent's replies, in order. To say nothing is an answer too."""

    replies: tuple[str, ...] = ()


class Pending(msgspec.Struct, frozen=True):
    """The agent will complete the turn through the API; until then the conversation stays claimed."""

    within_ms: int


class Sink(ABC):
    """Takes turns to an agent."""

    is_bounded = False
    """Whether `deliver` has a time limit of its own. If not, it gets that of Python handlers: `worker.handler_ms`."""

    @abstractmethod
    async def deliver(self, turn: Turn) -> Answer | Pending:
        """Hands the turn over and returns what came of it.

        Raises RetryLater if the agent asks for time, GiveUp if it never will answer, anything else for a failure.
        Cancelled when the person interrupts or the claim is lost; what it returns then counts for nothing.
        """

    async def cancel(self, claim: Claim) -> None:
        """The person interrupted, and nobody waits for an answer to this claim's turn any more.

        Called beside the cancellation of `deliver`, and for a turn that was to be completed later. For an agent that
        has to be told; it may take its time, and what it raises harms nobody.
        """
        return None

    async def aclose(self) -> None:
        """Releases connections, if there are any."""
        return None


SinkOpener = Callable[[str, Mapping[str, Any]], Sink]
"""What an entry point in `turntake.sinks` names: it makes the sink for an agent's URL, by the scheme of that URL.

The second argument holds what the operator set for agents that are called: `secrets`, `timeout_ms`,
`complete_within_ms` and `cancel_url`. Anything of the sink's own goes into the URL. Raises ConfigurationError.
"""
