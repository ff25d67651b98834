"""The turn as a handler holds it."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable

from turntake.rules.deadline import Decision
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Claim
from turntake.rules.text_format import ChatMessage, TextFormat, chat_messages, text_as


class TurnControl(ABC):
    """What a handler may do with the claim behind its turn. Each call raises ClaimLost once the claim is gone."""

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def reply(self, text: str) -> None: ...

    @abstractmethod
    async def extend(self, duration_ms: int | None) -> None: ...

    @abstractmethod
    async def absorb(self) -> Claim:
        """The claim with all that its turn has by now."""

    @abstractmethod
    def arrivals(self) -> AsyncIterator[Message]: ...


def no_token(turn_id: str) -> str:
    """For turns that nobody completes through the API."""
    return ""


class Turn:
    """One person's messages, handed over together; on a retry the same messages under the same id, with those that it
    absorbed."""

    def __init__(
        self,
        claim: Claim,
        control: TurnControl,
        token_for: Callable[[str], str] = no_token,
        text_format: TextFormat = "lines",
    ) -> None:
        self.claim = claim
        self.text_format = text_format
        self._control = control
        self._token_for = token_for

    @property
    def id(self) -> str:
        """Never changes across retries: use it as your idempotency key."""
        return self.claim.turn.id

    @property
    def conversation(self) -> ConversationKey:
        return self.claim.key

    @property
    def messages(self) -> tuple[Message, ...]:
        """In the person's order."""
        return self.claim.messages

    @property
    def text(self) -> str:
        """The messages joined by newlines, or as the rule `text_format` says."""
        return text_as(self.text_format, self.claim.messages)

    def text_as(self, text_format: TextFormat) -> str:
        """The messages as one text: `"lines"`; `"times"`, each with the time since the first, as in `[+5s] and red`; or
        `"senders"`, each with who sent it."""
        return text_as(text_format, self.claim.messages)

    def chat_messages(self) -> list[ChatMessage]:
        """The messages as OpenAI's chat completions take them, and most others: `{"role": "user", "content": "…"}`,
        with a `name` if several people wrote. What your agent said before, and what it is told, goes in front."""
        return chat_messages(self.claim.messages)

    @property
    def attempt(self) -> int:
        """1 at first; grows each time the turn is handed over again."""
        return self.claim.turn.attempt

    @property
    def reason(self) -> str:
        """Why the wait ended when it did: `silence`, `typing`, `max wait` and so on."""
        return self.claim.turn.due.reason

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Every deadline on the way, with its reason."""
        return self.claim.turn.decisions

    @property
    def waited_ms(self) -> int:
        """From the first message's arrival until the turn was claimed."""
        return self.claim.turn.claimed_at - self.claim.first_at

    @property
    def agent(self) -> str:
        return self.claim.turn.agent

    @property
    def completion_token(self) -> str:
        """With it instead of an API key, whoever has the turn can complete, fail or extend it over HTTP, and nothing
        else. The same on every attempt. Empty if the store could not be asked for what it is made with."""
        return self._token_for(self.id)

    async def commit(self) -> None:
        """The point of no return: from here on a new message no longer interrupts this answer."""
        await self._control.commit()

    async def reply(self, text: str) -> None:
        """Sends a reply at once, while the handler goes on. A retry does not send again what already left."""
        await self._control.reply(text)

    async def extend(self, duration_ms: int | None = None) -> None:
        """Keeps the claim for longer. Only needed by handlers that block the event loop; others are kept alive."""
        await self._control.extend(duration_ms)

    def arrivals(self) -> AsyncIterator[Message]:
        """Messages that come in while the handler runs. They are shown here and wait for the next turn, unless the
        handler absorbs them."""
        return (message async for message in self._control.arrivals() if not message.is_amendment)

    async def absorb(self) -> tuple[Message, ...]:
        """Takes what waits into this turn: it is answered and settled with it, and comes again with it after a failure.

        Returns what is new in `messages`, in the person's order. That is nothing if nothing waits, if it is too much
        for one turn, or unless the rules say `on_busy = "steer"`. What was absorbed gets no other answer than this one.
        """
        before = self.claim.turn.tail
        self.claim = await self._control.absorb()
        return tuple(message for message in self.claim.messages if message.seq > before)
