"""`TurnTake`: the object that a library user holds. It buffers what is given to it, runs a worker, and closes both.

It is B, C and D of a message's way in one process. A, `accept/`, lies above: it turns requests and connections into
arrivals and hands them to `TurnTake.accept`. What a conversation lives by is decided in `rules/`; this file only
connects the parts, and `follow_up.py` tells those who must know of each step.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from turntake.api_keys import ApiKeys, keys_in
from turntake.argument_checks import Role, checked_layers, checked_options, checked_role, checked_sink
from turntake.arrival import (
    Arrival,
    Receipt,
    append_of,
    check_integers,
    checked_key,
    checked_touch,
    key_of,
    sound_arrival,
    sound_message,
    texts_of,
)
from turntake.buffer.document_watch import DocumentWatch
from turntake.buffer.janitor import DedupeOptions, HistoryOptions, LetterOptions, keep_forgetting
from turntake.buffer.open import open_store
from turntake.buffer.rule_keeper import RuleKeeper
from turntake.buffer.store import Store
from turntake.claim.alarm import Alarm
from turntake.claim.attempt import Ports
from turntake.claim.completion import AbsorbingTurn, Completion, TurnArrivals
from turntake.claim.options import WorkerOptions
from turntake.claim.worker import Worker
from turntake.clock import Clock, SystemClock
from turntake.deliver.handler import Handler
from turntake.deliver.notices import Notices
from turntake.deliver.options import HandlerOptions, Yields
from turntake.deliver.outbound import NoOutbound, Outbound
from turntake.deliver.sink import Sink
from turntake.errors import ConfigurationError
from turntake.follow_up import FollowUp
from turntake.observe.observer import Observer, Observers
from turntake.observe.options import SavingsOptions
from turntake.observe.stream import Stream
from turntake.rate_limits import RateLimits
from turntake.rules.conversation import Conversation, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, TurnRecord
from turntake.rules.retention import Retention
from turntake.rules.rules import Rules
from turntake.rules.scopes import Layer, RuleScope
from turntake.savings import SavingsTotals
from turntake.tasks import end

if TYPE_CHECKING:
    from turntake.http.app import App

log = logging.getLogger("turntake")

H = TypeVar("H", bound=Handler)

DEFAULT_STORE = "sqlite:///turntake.db"
DEFAULT_ROLE: Role = "all"
_WORKER, _HISTORY, _HANDLER = WorkerOptions(), HistoryOptions(), HandlerOptions()
_DEDUPE, _LETTERS, _SAVINGS = DedupeOptions(), LetterOptions(), SavingsOptions()


class TurnTake:
    """Collects people's messages into turns and looks after each until it is answered.

    Use it as `async with turns:`, or through the app that `asgi()` returns, which does so itself.
    """

    def __init__(
        self,
        store: str | Store = DEFAULT_STORE,
        *,
        rules: Rules | str | Mapping[str, Any] | Mapping[RuleScope, Layer] = Rules(),  # noqa: B008 - a frozen value
        agent: Sink | Handler | None = None,
        outbound: Outbound | None = None,
        role: Role = DEFAULT_ROLE,
        concurrency: int = _WORKER.concurrency,
        lease_ms: int = _WORKER.lease_ms,
        keep_ms: int = _HISTORY.keep_ms,
        dedupe_keep_ms: int = _DEDUPE.keep_ms,
        letters_keep_ms: int = _LETTERS.keep_ms,
        shutdown_ms: int = _WORKER.shutdown_ms,
        handler_ms: int = _WORKER.handler_ms,
        clock: Clock | None = None,
        observers: Sequence[Observer] = (),
        yields: Yields = _HANDLER.yields,
        call_price: float = _SAVINGS.call_price,
        currency: str = _SAVINGS.currency,
    ) -> None:
        """`rules` may name a preset, or be a table as in turntake.toml: `{"tenant": {"acme": {"silence_ms": 500}}}`. A
        `store` or `agent` object passed in is used, and closed by whoever made it.

        `role` says what this process does by itself: with "accept" it claims no turn and needs no agent; with "work" it
        takes no messages over HTTP. `receive` and `accept` buffer messages in every role, since a handler may write to
        another conversation. `observers` hear of each step of a message's life, as does the event stream. `yields` says
        whether the pieces that a generator yields are replies, or are joined to one. With `call_price`, `savings` tells
        what the calls of the agent that were avoided would have cost.
        """
        self.clock = clock or SystemClock()
        self.savings = SavingsTotals(self.clock, checked_options(SavingsOptions(call_price, currency)))
        self.observers = Observers(self.clock, (self.savings.meter, *observers))
        self.events = Stream(self.observers)
        self._rules = RuleKeeper(checked_layers(rules))
        self.keys = ApiKeys()
        self._limits = RateLimits(self.clock)
        self.role = checked_role(role)
        self._worker_options = checked_options(WorkerOptions(concurrency, lease_ms, shutdown_ms, handler_ms))
        self._store_or_url = store
        self._yields = checked_options(HandlerOptions(yields)).yields
        self._sink = None if agent is None else checked_sink(agent, self._yields)
        self._outbound = outbound or NoOutbound()
        self._retention = Retention(
            checked_options(HistoryOptions(keep_ms)).keep_ms,
            checked_options(DedupeOptions(dedupe_keep_ms)).keep_ms,
            checked_options(LetterOptions(letters_keep_ms)).keep_ms,
        )
        self._store: Store | None = None
        self._worker: Worker | None = None
        self._stopping: asyncio.Task[None] | None = None
        self.is_draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    def handler(self, function: H) -> H:
        """Makes `function` the agent: it takes a Turn and returns or yields a text, a list of texts, or None."""
        self._sink = checked_sink(function, self._yields)
        return function

    def set_outbound(self, outbound: Outbound) -> None:
        """Replies leave through `outbound`, unless the constructor was given one. Call it before `async with`."""
        if isinstance(self._outbound, NoOutbound):
            self._outbound = outbound

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """For an app that this is mounted in: `FastAPI(lifespan=turns.lifespan)` runs it as long as the app runs."""
        async with self:
            yield

    def asgi(self, **options: Any) -> "App":
        """The HTTP service as an ASGI app, to run or to mount. Options are those of `turntake.http.app.create`."""
        from turntake.http.app import create

        return create(self, **options)

    async def __aenter__(self) -> Self:
        if isinstance(self._store_or_url, Store):
            self._store = self._store_or_url
        else:
            self._store = await self._stack.enter_async_context(open_store(self._store_or_url, self.clock))
        self._watch = DocumentWatch(self._store)
        self._rules.open(self._store, self._watch)
        self.keys.open(self._store, self._watch)
        self._alarm = Alarm(self.clock)
        self._completion = Completion(self._store, self._outbound, self.rules_for)
        self._notices = Notices(self._outbound)
        try:
            await self._watch.start()
            self.savings.open(self._store)
            self._start()
        except BaseException:
            await self._stack.aclose()
            self._store = None
            self.keys.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drain()
        try:
            if self._stopping is not None:
                await self._stopping
        finally:
            await self._notices.close()
            await end(self._tasks)
            self._tasks.clear()
            await self.savings.close()
            self._worker = self._stopping = None
            self.is_draining = False
            self._store = None
            self.keys.close()
            await self._stack.aclose()

    def drain(self) -> None:
        """From now on nothing more is claimed; answers under way may finish, the rest is handed back.

        What arrives is still buffered, for others or for the next start. Leaving `async with` drains first.
        """
        self.is_draining = True
        if self._worker is not None and self._stopping is None:
            self._stopping = asyncio.create_task(self._worker.stop(), name="turntake-drain")

    def hurry(self) -> None:
        """While it drains: no longer waits for answers under way, and hands them back now."""
        if self._worker is not None:
            self._worker.hurry()

    @property
    def slots_full_ms(self) -> int:
        """For how long every slot for a turn has been taken in this process, if that is worth a word; else 0."""
        return 0 if self._worker is None else self._worker.full_ms

    async def has_api_keys(self) -> bool:
        """Whether somebody ever made an API key: asked of the store before this runs, since nobody is served without
        one then."""
        if isinstance(self._store_or_url, Store) or self.is_running:
            return self.keys.is_needed
        async with open_store(self._store_or_url, self.clock) as store:
            keys = await keys_in(store)
        return keys.is_needed

    @property
    def is_running(self) -> bool:
        return self._store is not None

    @property
    def is_answering(self) -> bool:
        """Whether answers are under way here."""
        return self._worker is not None and self._worker.is_busy

    @property
    def store(self) -> Store:
        if self._store is None:
            raise ConfigurationError("TurnTake is not running: enter it with `async with turns:` first.")
        return self._store

    @property
    def rules(self) -> Rules:
        """The rules of every conversation for which nothing else is set."""
        return self._rules.book.default

    @property
    def rule_keeper(self) -> RuleKeeper:
        """Knows the rules of all scopes, and changes those that are set while the service runs."""
        return self._rules

    def rules_for(self, key: ConversationKey, agent: str = "") -> Rules:
        """The rules a conversation with this agent lives by."""
        return self._rules.book.of(key).of(agent)

    async def receive(
        self, text: str, *, conversation: str | int, id: str | int, sender: str | int = "", **parts: str
    ) -> Receipt:
        """Accepts one message; `parts` are the other parts of the conversation's key, such as `topic`.

        Ids that are integers, as some platforms have them, are taken as text. Raises InvalidMessage.
        """
        key = key_of(conversation, parts)
        message = sound_message(Message(id=id, text=text, sender=sender))  # type: ignore[arg-type]  # it makes texts
        (receipt,) = await self.accept_sound([Arrival(key, message)])
        return receipt

    async def accept(self, arrivals: Sequence[Arrival]) -> list[Receipt]:
        """Buffers all arrivals, or raises: then send all again, which repeats nothing.

        Blank ones are ignored, and so are amendments of a conversation in which nothing waits any more. A message that
        could not be read again is refused with InvalidMessage, and more than the rules allow per minute with
        RateLimited; none of the call's messages is buffered then.
        """
        return await self.accept_sound([sound_arrival(arrival) for arrival in arrivals])

    async def accept_sound(self, arrivals: Sequence[Arrival]) -> list[Receipt]:
        """As `accept`, for whoever has checked them: what was decoded into types need not be looked at again."""
        book = self._rules.book
        self._limits.check(arrivals, book)
        worded = [arrival for arrival in arrivals if not arrival.message.is_blank]
        return await self._append(arrivals, [append_of(arrival, book) for arrival in worded])

    async def accept_reported(self, arrivals: Sequence[Arrival]) -> list[Receipt]:
        """As `accept_sound`, for what a platform reports: all of it is taken, since a platform would only send it again
        and again. What is over a limit is kept as rejected, and the person is told so."""
        book = self._rules.book
        worded = [arrival for arrival in arrivals if not arrival.message.is_blank]
        over = self._limits.over(worded, book)
        appends = [append_of(arrival, book, rule) for arrival, rule in zip(worded, over, strict=True)]
        return await self._append(arrivals, appends)

    async def _append(self, arrivals: Sequence[Arrival], appends: Sequence[Append]) -> list[Receipt]:
        """Has the store keep those that are not blank, and answers for all of them."""
        answers = await self.store.append(appends) if appends else []
        receipts = [self._follow_up.appended(append, answer) for append, answer in zip(appends, answers, strict=True)]
        if len(appends) == len(arrivals):
            return receipts
        stored = iter(receipts)
        return [self._follow_up.blank(arrival) if arrival.message.is_blank else next(stored) for arrival in arrivals]

    async def touch(self, key: ConversationKey, touch: Touch) -> Conversation | None:
        """Carries out a sign of life or an order; None if the conversation is unknown. Raises InvalidMessage."""
        key, touch = checked_key(key), checked_touch(touch)
        conversation = await self.store.touch(key, touch, self._rules.book.of(key))
        if conversation is not None:
            self._follow_up.touched(key, touch, conversation)
        return conversation

    async def complete(self, turn_id: str, replies: Sequence[str]) -> TurnRecord | None:
        """Completes a turn from outside; completing it again returns the first result. Raises InvalidMessage.

        `replies` may be one text.
        """
        reported = await self._completion.complete(turn_id, texts_of(replies))
        self._follow_up.reported(reported)
        return reported.record

    async def fail(
        self, turn_id: str, error: str, retry_after_ms: int | None = None, attempt: int | None = None
    ) -> TurnRecord | None:
        """Reports a failed attempt from outside; with `attempt`, only that one. Raises InvalidMessage."""
        check_integers(retry_after_ms=retry_after_ms, attempt=attempt)
        reported = await self._completion.fail(turn_id, str(error), retry_after_ms, attempt)
        self._follow_up.reported(reported)
        return reported.record

    async def extend(self, turn_id: str, lease_ms: int | None = None) -> TurnRecord | None:
        """Keeps a turn claimed for longer, from outside. Raises InvalidMessage."""
        check_integers(lease_ms=lease_ms)
        return await self._completion.extend(turn_id, lease_ms, self._worker_options.lease_ms)

    async def absorb(self, turn_id: str) -> AbsorbingTurn:
        """Takes what waits into a turn that is being answered, from outside, as `turn.absorb` does."""
        grown = await self._completion.absorb(turn_id)
        self._follow_up.absorbed(grown)
        return grown

    async def arrivals(self, turn_id: str, wait_ms: int = 0) -> TurnArrivals | None:
        """What came since a turn was handed over and waits; waits so long for it. None if there is no such turn."""
        check_integers(wait_ms=wait_ms)
        return await self._completion.arrivals(turn_id, wait_ms)

    async def retry_letter(self, letter_id: str) -> Conversation | None:
        """A dead letter's messages wait again, due at once."""
        conversation = await self.store.letters.retry(letter_id)
        self._follow_up.resumed()
        return conversation

    def _start(self) -> None:
        if self.role != "accept":
            if self._sink is None:
                raise ConfigurationError("No agent: decorate a function with @turns.handler, or pass agent=.")
            ports = Ports(
                self.store,
                self._sink,
                self._outbound,
                self.observers,
                self.rules_for,
                self.keys.token_for,
                lambda: self._rules.book,
                lambda: self._watch.is_known,
            )
            self._worker = Worker(ports, self._alarm, self._worker_options)
            self._worker.start()
        self._follow_up = FollowUp(self.store, self._alarm, self.observers, self._notices, self._worker)
        if self._worker is not None:
            janitor = keep_forgetting(self.store, self._retention, lambda: self._rules.book)
            self._tasks.append(asyncio.create_task(janitor, name="turntake-janitor"))
            self._tasks.append(asyncio.create_task(self._follow_up.listen(self._worker), name="turntake-hints"))
        self._tasks.append(asyncio.create_task(self._watch.keep_looking(), name="turntake-documents"))
        telling = self._rules.keep_telling(lambda key: self.touch(key, Touch("rules")))
        self._tasks.append(asyncio.create_task(telling, name="turntake-rules"))
        self._tasks.append(asyncio.create_task(self.savings.keep_stored(), name="turntake-savings"))
