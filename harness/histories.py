"""Short random lives of a model, for the properties that every store must show."""

import os
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from hypothesis import strategies as st

from turntake.rules.conversation import Answered, Conversation, Dead, Progress, Retry, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.model import Model
from turntake.rules.records import Append, Claim
from turntake.rules.rules import Rules
from turntake.rules.transitions import holds

LEASE_MS = 10_000
KEYS = tuple(ConversationKey.of(name, topic=topic) for name in ("ann", "bob") for topic in ("", "order"))


def scaled(histories: int) -> int:
    """How many histories to try, by TURNTAKE_TEST_HISTORIES: how many the model itself lives through [2000]."""
    return max(1, histories * int(os.environ.get("TURNTAKE_TEST_HISTORIES", "2000")) // 2000)


class Write(NamedTuple):
    key: ConversationKey
    number: int
    rules: Rules


class Wait(NamedTuple):
    duration_ms: int


class Sign(NamedTuple):
    key: ConversationKey
    kind: Literal["composing", "stopped"]
    duration_ms: int


class Work(NamedTuple):
    """Somebody claims what is due, all of it, and this comes of it."""

    outcome: Literal["answer", "fail", "give up", "crash", "save and crash"]


class Finish(NamedTuple):
    """Somebody who had crashed comes back and answers, in time or not."""

    which: int


Step = Write | Wait | Sign | Work | Finish

QUEUE = Rules()
EVERY_KIND = (
    QUEUE,
    Rules(window_ms=2_000),
    Rules(min_messages=2, max_messages=3),
    Rules(capacity=3),
    Rules(enabled=False),
    Rules(on_busy="interrupt"),
)

keys = st.sampled_from(KEYS)
waits = st.builds(Wait, st.sampled_from([0, 1, 999, 1_000, 3_000, 30_000]))
signs = st.builds(Sign, keys, st.sampled_from(["composing", "stopped"]), st.sampled_from([0, 1, 5_000, 60_000]))
finishes = st.builds(Finish, st.integers(0, 100))


def writes(*rules: Rules) -> st.SearchStrategy[Write]:
    return st.builds(Write, keys, st.integers(1, 30), st.sampled_from(rules or EVERY_KIND))


def work(*outcomes: str) -> st.SearchStrategy[Work]:
    return st.builds(Work, st.sampled_from(outcomes or ("answer", "fail", "give up", "crash", "save and crash")))


def lives(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.one_of(*(kinds or (writes(), waits, signs, work(), finishes))), min_size=5, max_size=40)


@dataclass
class World:
    """A model, the time, and what everybody outside of it remembers."""

    model: Model = field(default_factory=Model)
    now: int = 0
    acknowledged: set[tuple[ConversationKey, str]] = field(default_factory=set)
    claimed: list[Claim] = field(default_factory=list)
    crashed: list[Claim] = field(default_factory=list)
    answered: list[Claim] = field(default_factory=list)
    given_up: list[Claim] = field(default_factory=list)

    def live(self, steps: Sequence[Step]) -> "World":
        for step in steps:
            self.do(step)
        return self

    def do(self, step: Step) -> None:
        if isinstance(step, Write):
            message = Message(f"m{step.number}", "text")
            self.model.append([Append(step.key, message, step.rules)], self.now)
            self.acknowledged.add((step.key, message.id))
        elif isinstance(step, Wait):
            self.now += step.duration_ms
        elif isinstance(step, Sign):
            self.model.touch(step.key, Touch(step.kind, step.duration_ms), QUEUE, self.now)
        elif isinstance(step, Work):
            self.work(step.outcome)
        elif self.crashed:
            self.answer(self.crashed.pop(step.which % len(self.crashed)))

    def work(self, outcome: str) -> None:
        for claim in self.model.claim(1_000, LEASE_MS, self.now):
            self.claimed.append(claim)
            if outcome == "answer":
                self.answer(claim)
            elif outcome == "fail":
                self.model.settle(claim, Retry(1_000), self.now)
            elif outcome == "give up":
                self.model.settle(claim, Dead("gave up"), self.now)
                self.given_up.append(claim)
            else:
                if outcome == "save and crash":
                    self.model.save(claim, Progress(("hello",), 0, True))
                self.crashed.append(claim)

    def answer(self, claim: Claim) -> None:
        did_hold = holds(self.model.conversations[claim.key], claim.epoch, claim.turn.id)
        assert self.model.settle(claim, Answered(("hello",)), self.now) == did_hold
        if did_hold:
            self.answered.append(claim)

    def drain(self) -> None:
        """Nobody writes or crashes any more; whatever there is falls due and is answered."""
        while (due_at := self.model.next_due()) is not None:
            self.now = max(self.now, due_at)
            self.work("answer")

    def open_messages(self, key: ConversationKey) -> list[Message]:
        found = self.model.find(key)
        return list(found.messages) if found else []

    def conversation(self, key: ConversationKey) -> Conversation:
        return self.model.conversations.get(key, Conversation())

    def picture(self) -> dict[str, Any]:
        return deepcopy(vars(self.model))
