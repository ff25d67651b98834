"""The port: who hears of each step of a message's life.

                ┌▶ refused, ignored, rejected
    a message ──┴▶ received ─▶ touched … ─▶ due ─▶ claimed ─▶ absorbed …, replied … ─▶ answered
                                                      │ ▲
                                                      ▼ │
      interrupted, discarded, failed, put_off, handed_back, pending, lost, unsettled         stopped, dead
                                                                              reported, once the reply has left

The event stream is an observer (`observe/stream.py`). Others are given to `TurnTake(observers=[…])`.
"""

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterable
from typing import Concatenate, Literal, ParamSpec

from turntake.clock import Clock
from turntake.errors import Forged, Unreadable
from turntake.rules.conversation import Answered, Conversation, Dead, ReplyReport, Retry, Settlement, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Appended, Claim

log = logging.getLogger("turntake")

Ignored = Literal["blank", "duplicate", "nothing to amend", "too old"]


class Observer:
    """One method for each step. Each does nothing: override those that you care about.

    They are called on the event loop just after the step, in this process only, and must not wait. `at` is the time of
    the step. What one raises is logged once and harms no turn.
    """

    def received(self, at: int, key: ConversationKey, message: Message, appended: Appended) -> None:
        """A message is stored and waits; or an amendment, which changes one that waits."""

    def refused(self, at: int, channel: str, account: str, error: Forged | Unreadable) -> None:
        """A webhook was turned away: it was not the platform's, or nobody could read it."""

    def ignored(self, at: int, key: ConversationKey, message: Message, reason: Ignored) -> None:
        """A message was acknowledged and changed nothing."""

    def rejected(self, at: int, key: ConversationKey, message: Message, appended: Appended) -> None:
        """A message came while its conversation was being answered, or was over a limit, and is kept as rejected: it is
        not answered. `appended.reason` says why."""

    def touched(self, at: int, key: ConversationKey, touch: Touch, conversation: Conversation) -> None:
        """The person was seen composing, somebody flushed, held or cleared the conversation, or its rules changed."""

    def interrupted(self, at: int, key: ConversationKey, turn_id: str) -> None:
        """A message stopped the answer that was being written, or made it stale; its turn collects again."""

    def stopped(self, at: int, key: ConversationKey, turn_id: str) -> None:
        """A stop word ended this: a turn that was being answered, which was `interrupted` just before, what waited, or
        an earlier stop word that nobody took yet. Nobody answers it. Told once for each, before the stop word itself is
        `received`."""

    def discarded(self, at: int, key: ConversationKey, turn_id: str) -> None:
        """An answer was stale when it was ready, and is not sent: the newer messages are answered alone."""

    def due(self, at: int, claim: Claim) -> None:
        """The wait of a turn is over. Called just before `claimed`, if it is the turn's first attempt.

        An answer that came through the API is sent under another claim of the same attempt, which is told here too.
        """

    def claimed(self, at: int, claim: Claim) -> None:
        """A worker took a turn: an attempt begins."""

    def absorbed(self, at: int, claim: Claim, messages: tuple[Message, ...]) -> None:
        """Messages that came during the answer belong to its turn from here on; `claim` has all that the turn has."""

    def pending(self, at: int, claim: Claim, within_ms: int) -> None:
        """The agent took the turn and will complete it through the API."""

    def completed(self, at: int, claim: Claim, replies: tuple[str, ...]) -> None:
        """The agent completed a turn through the API. The replies are saved, and have yet to be sent."""

    def replied(self, at: int, claim: Claim, index: int, text: str, platform_id: str) -> None:
        """A reply left. `platform_id` is the platform's id of it, or "" if it gave none."""

    def reply_unknown(self, at: int, claim: Claim, index: int) -> None:
        """A reply was handed to the platform, which never said whether it took it."""

    def reported(self, at: int, key: ConversationKey, turn_id: str, report: ReplyReport) -> None:
        """The platform says what became of a reply, which may be long after it left. One that failed makes its turn a
        dead letter; without `answered` before, as soon as the turn is answered."""

    def answered(self, at: int, claim: Claim, answer: Answered) -> None:
        """The turn is over: all its replies left, or stay with it where there is no way out."""

    def failed(self, at: int, claim: Claim, retry: Retry, error: Exception | None) -> None:
        """An attempt failed, and there will be another. Without `error`, the agent reported it through the API."""

    def put_off(self, at: int, claim: Claim, retry: Retry, error: Exception | None) -> None:
        """The agent or the platform asked to be called later. That costs no attempt."""

    def dead(self, at: int, claim: Claim, dead: Dead, error: Exception | None) -> None:
        """The turn became a dead letter."""

    def handed_back(self, at: int, claim: Claim) -> None:
        """This worker stops before the turn was answered; the next worker takes it at once."""

    def lost(self, at: int, claim: Claim) -> None:
        """Somebody else took the turn over: what this worker did with it counts for nothing."""

    def unsettled(self, at: int, claim: Claim) -> None:
        """The store was away when the attempt ended: the turn is handed over again when its lease ends."""


STEPS = tuple(step for name, step in vars(Observer).items() if not name.startswith("_"))
P = ParamSpec("P")


class Observers:
    """Those who observe one TurnTake. They may come and go.

    How this works: whenever they change, the methods that override a step are collected for each step. So a step costs
    one look-up if nobody cares about it, and nothing is built for it, not even the time.
    """

    def __init__(self, clock: Clock, observers: Iterable[Observer] = ()) -> None:
        self._clock = clock
        self._observers = tuple(observers)
        self._methods: dict[Callable[..., None], list[Callable[..., None]]] = {}
        self._faults: set[str] = set()
        self._collect()

    def add(self, observer: Observer) -> None:
        self._observers = (*self._observers, observer)
        self._collect()

    def remove(self, observer: Observer) -> None:
        self._observers = tuple(other for other in self._observers if other is not observer)
        self._collect()

    def tell(self, step: Callable[Concatenate[Observer, int, P], None], *facts: P.args, **more: P.kwargs) -> None:
        """Calls this method of every observer that has it: `tell(Observer.claimed, claim)`. It never raises."""
        methods = self._methods.get(step)
        if methods is None:
            return
        at = self._clock.now()
        for method in methods:
            try:
                method(at, *facts, **more)
            except (Exception, CancelledError) as error:
                # Nothing is awaited here, so this CancelledError cancels nobody: a future that it asked was cancelled.
                self._log_once(getattr(method, "__qualname__", repr(method)), error)

    def tell_settled(self, claim: Claim, settlement: Settlement, error: Exception | None) -> None:
        """Tells the step that this end of a claim is."""
        if isinstance(settlement, Answered):
            self.tell(Observer.answered, claim, settlement)
        elif isinstance(settlement, Dead):
            if error is None:
                _log_dead(claim, settlement)
            self.tell(Observer.dead, claim, settlement, error)
        elif settlement.is_failure:
            self.tell(Observer.failed, claim, settlement, error)
        else:
            self.tell(Observer.put_off, claim, settlement, error)

    def tell_withdrawn(self, key: ConversationKey, turn_id: str, status: str) -> None:
        """Tells what became of a turn whose answer was stale."""
        self.tell(Observer.interrupted if status == "interrupted" else Observer.discarded, key, turn_id)

    def _collect(self) -> None:
        self._methods.clear()
        for step in STEPS:
            overriding = [o for o in self._observers if getattr(type(o), step.__name__) is not step]
            if overriding:
                self._methods[step] = [getattr(observer, step.__name__) for observer in overriding]

    def _log_once(self, method: str, error: BaseException) -> None:
        """An observer that is broken is broken for every message, and one line says it as well as a million."""
        if method not in self._faults:
            self._faults.add(method)
            facts = {"action": "observe", "observer": method, "error": type(error).__name__}
            log.error("An observer raised; that is logged once", exc_info=error, extra=facts)


def _log_dead(claim: Claim, dead: Dead) -> None:
    """Where an exception ended it, whoever caught that has said so; this is for agents that report their failure, and
    for turns whose workers died."""
    facts = {"action": "fail", "conversation": str(claim.key), "turn": claim.turn.id, "reason": dead.reason}
    log.warning("The messages of a turn are a dead letter now", extra=facts)
