"""When is a person done? The one formula, for every store.

Each deadline carries its reason, so that "why did it wait?" always has an answer.
"""

import msgspec

from turntake.rules.rules import Rules

REASONS = {
    "silence": "the person may still add something",
    "typing": "the person is sending one message after another",
    "window": "the window that the first message opened is still open",
    "waiting for more": "there are fewer messages than min_messages asks for",
    "max wait": "the person still writes, and max_wait ends the wait then",
    "max messages": "max_messages is reached, so nothing more is waited for",
    "capacity": "the buffer is full, so nothing more is waited for",
    "off switch": "buffering is switched off, so nothing is waited for",
    "flush word": "the person said that this is all, so nothing more is waited for",
    "hold word": "the person asked for a moment",
    "stop word": "the person said to stop, so nothing is waited for",
    "cut text": "the text is as long as the platform allows, so that its rest may follow",
    "activity": "the person is typing or recording",
    "held": "somebody put it on hold",
    "flushed": "somebody flushed it",
    "retried": "a dead letter came back",
    "rules changed": "somebody changed the rules",
}
"""Every reason that a deadline can have, and how a sentence goes on after "it waits, because"."""


class Deadline(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The moment at which a conversation is due, and why then: one of `REASONS`, or one that a later release has."""

    at: int
    reason: str


class Decision(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step of a turn's wait: at `at`, the deadline became `due_at` because of `reason`."""

    at: int
    due_at: int
    reason: str


def after_message(
    rules: Rules, count: int, first_at: int, previous_at: int | None, now: int, cue: str = ""
) -> Deadline:
    """The deadline of a buffer that just received its `count`-th message; `previous_at` is the arrival before it, and
    `cue` what the message says about the wait."""
    if not rules.enabled:
        return Deadline(now, "off switch")
    if count >= rules.capacity:
        return Deadline(now, "capacity")
    if count >= rules.max_messages:
        return Deadline(now, "max messages")
    if cue == "flush":
        return Deadline(now, "flush word")
    latest = first_at + rules.max_wait_ms
    if count < rules.min_messages:
        return Deadline(latest, "waiting for more")
    due = _once_quiet(rules, first_at, previous_at, now)
    if cue:
        due = _lengthened(rules, due, cue, now)
    return due if due.at <= latest else Deadline(latest, "max wait")


def after_activity(rules: Rules, count: int, first_at: int, due: Deadline, composing_ms: int, now: int) -> Deadline:
    """The deadline after a sign that the person still composes: pushed back, never forward, never past max wait."""
    if rules.window_ms or not rules.enabled or count >= min(rules.max_messages, rules.capacity):
        return due
    pushed = Deadline(max(due.at, now + composing_ms), "activity")
    latest = first_at + rules.max_wait_ms
    if pushed.at > latest:
        pushed = Deadline(latest, "max wait")
    return pushed if pushed.at > due.at else due


def after_composing(rules: Rules, due: Deadline, due_by_messages: Deadline, now: int) -> Deadline:
    """The deadline once composing stopped: what the messages alone say, after a last silence in case one is coming."""
    back = Deadline(max(due_by_messages.at, now + rules.silence_ms), due_by_messages.reason)
    return back if back.at < due.at else due


def after_rules(
    rules: Rules, count: int, first_at: int, previous_at: int | None, last_at: int, now: int, cue: str = ""
) -> Deadline:
    """The deadline of a buffer whose rules are others than before: as if its latest message had come under them, but
    not in the past."""
    due = after_message(rules, count, first_at, previous_at, last_at, cue)
    return due if due.at >= now else Deadline(now, due.reason)


def _once_quiet(rules: Rules, first_at: int, previous_at: int | None, now: int) -> Deadline:
    if rules.window_ms:
        return Deadline(first_at + rules.window_ms, "window")
    is_typing = previous_at is not None and now - previous_at < rules.typing_inference_ms
    if is_typing and rules.typing_inference_ms > rules.silence_ms:
        return Deadline(now + rules.typing_inference_ms, "typing")
    return Deadline(now + rules.silence_ms, "silence")


def _lengthened(rules: Rules, due: Deadline, cue: str, now: int) -> Deadline:
    """After a hold word, or a text that may go on. A window is as long as it is."""
    if rules.window_ms:
        return due
    if cue == "cut":
        longer = Deadline(now + rules.cut_text_ms, "cut text")
    else:
        longer = Deadline(now + rules.hold_word_ms, "hold word")
    return longer if longer.at > due.at else due
