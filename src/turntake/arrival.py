"""What a program hands to `TurnTake`: an arrival, a sign, a report. Each is checked before it reaches a store.

msgspec checks what it decodes, and nothing that is built in Python. A value of the wrong type would be stored, and
nobody could read its row again. So whatever comes in through the library is converted here or refused with
InvalidMessage, which says what to write instead.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from turntake.errors import InvalidMessage
from turntake.rules.conversation import Touch
from turntake.rules.cues import cue_of
from turntake.rules.field_checks import check_fields
from turntake.rules.key import CACHED, ConversationKey
from turntake.rules.message import Message
from turntake.rules.message_check import name_of, sound
from turntake.rules.records import Append, AppendStatus
from turntake.rules.scopes import RuleBook
from turntake.rules.words import NO_CUE


class Arrival(msgspec.Struct, frozen=True):
    """A message on its way in. Its text `is_cut` if it fills the longest one that its platform takes."""

    key: ConversationKey
    message: Message
    agent: str = ""
    is_cut: bool = False


class Receipt(msgspec.Struct, frozen=True):
    """What became of an arrival. `messages` wait together until `due_at`, because of `reason`; if it was rejected,
    `reason` says why."""

    status: AppendStatus
    key: ConversationKey
    messages: int = 0
    due_at: int | None = None
    reason: str | None = None


def append_of(arrival: Arrival, book: RuleBook, over: str = "") -> Append:
    """What the store is asked to keep: the message with its rules, and what it says about the wait. `over` is the rule
    whose limit it is over."""
    key, message, agent, is_cut = arrival.key, arrival.message, arrival.agent, arrival.is_cut
    rules = book.of(key)
    if not book.has_words and not is_cut:
        return Append(key, message, rules, agent, NO_CUE, over)
    return Append(key, message, rules, agent, cue_of(message, rules, agent, is_cut=is_cut), over)


def sound_arrival(arrival: Arrival) -> Arrival:
    """The arrival, if a store can keep and read it; what was plainly meant is converted."""
    message, key, agent = sound_message(arrival.message), checked_key(arrival.key), _agent(arrival.agent)
    if message is arrival.message and key is arrival.key and agent is arrival.agent:
        return arrival
    return Arrival(key, message, agent, bool(arrival.is_cut))


def sound_message(message: Message) -> Message:
    """The message of an arrival, in the same way."""
    try:
        return sound(message)
    except ValueError as error:
        raise InvalidMessage(str(error)) from None


def _agent(agent: str) -> str:
    try:
        return agent if type(agent) is str else name_of("agent", agent)
    except ValueError as error:
        raise InvalidMessage(str(error)) from None


def key_of(conversation: str | int, parts: Mapping[str, str]) -> ConversationKey:
    """The key of a conversation."""
    try:
        return ConversationKey.of(conversation, **parts)
    except ValueError as error:
        raise InvalidMessage(str(error)) from None
    except TypeError:  # a name that no part of a key has
        unknown = next(name for name in parts if name not in ConversationKey._fields)
        raise TypeError(
            f"receive() takes no {unknown!r}, only texts and the parts of a key. "
            "A message with more is accepted by `turns.accept([Arrival(ConversationKey.of(…), Message(…))])`."
        ) from None


def checked_key(key: ConversationKey) -> ConversationKey:
    """The key, if it is one that `ConversationKey.of` makes; a key built by hand might have a spelling of its own."""
    if not isinstance(key, ConversationKey):
        raise InvalidMessage(f"The key is of type {type(key).__name__}: build it with ConversationKey.of().")
    try:
        return _parsed(key)
    except ValueError as error:
        raise InvalidMessage(f"{error} Build keys with ConversationKey.of().") from None
    except (AttributeError, TypeError):
        raise InvalidMessage("A part of the key is not a text: build it with ConversationKey.of().") from None


@lru_cache(CACHED)
def _parsed(key: ConversationKey) -> ConversationKey:
    return ConversationKey.parse(str(key))


def checked_touch(touch: Touch) -> Touch:
    """The sign or order, if it is one that there is."""
    if not isinstance(touch, Touch):
        raise InvalidMessage(f'This is of type {type(touch).__name__}, not a sign or an order: write Touch("flush").')
    try:
        check_fields(touch)
    except ValueError as error:
        raise InvalidMessage(str(error)) from None
    return touch


def texts_of(replies: Sequence[str]) -> tuple[str, ...]:
    """The replies of an answer; a single text is one reply, and not as many as it has letters."""
    texts = (replies,) if isinstance(replies, str) else tuple(replies)
    for text in texts:
        if not isinstance(text, str):
            raise InvalidMessage(f"A reply is of type {type(text).__name__}: write a text, or a tuple of texts.")
    return texts


def check_integers(**numbers: int | None) -> None:
    """Refuses what is no whole number of 0 or more; None is none at all."""
    for name, number in numbers.items():
        if number is not None and (type(number) is not int or number < 0):
            raise InvalidMessage(f"`{name}` is {number!r}: write an integer of 0 or more.")
