"""What signs of life and orders do to a conversation: typing, hold, flush, clear, new rules. Pure."""

from msgspec.structs import replace

from turntake.rules.buffer import decided, is_ordered, reconsidered_buffer, with_hold
from turntake.rules.conversation import Change, Conversation, Touch
from turntake.rules.deadline import Deadline, after_activity, after_composing
from turntake.rules.key import ConversationKey
from turntake.rules.rules import RulesByAgent
from turntake.rules.transitions import emptied


def touch(conversation: Conversation, key: ConversationKey, touch: Touch, by_agent: RulesByAgent, now: int) -> Change:
    """The conversation after a sign or an order. Composing never creates a turn and never makes one due earlier."""
    if touch.kind == "flush":
        return Change(_flushed(conversation, now))
    if touch.kind == "clear":
        return _cleared(conversation, key, now)
    buffer = conversation.buffer
    if buffer is None:
        return Change(conversation)
    rules = by_agent.of(conversation.agent)
    if touch.kind == "rules":
        return Change(replace(conversation, buffer=reconsidered_buffer(conversation, buffer, rules, now)))
    if touch.kind == "hold":
        due = buffer.due_by_messages if buffer.due.reason == "held" else buffer.due
        buffer = replace(buffer, held_until=now + touch.duration_ms)
    elif touch.kind == "stopped":
        due = after_composing(rules, buffer.due, buffer.due_by_messages, now)
    else:
        composing_ms = touch.duration_ms or rules.activity_ms
        due = after_activity(rules, conversation.waiting, buffer.first_at, buffer.due, composing_ms, now)
    due = buffer.due if is_ordered(buffer) and touch.kind != "hold" else with_hold(buffer, due)
    if due != buffer.due:
        buffer = decided(buffer, due, now)
    return Change(replace(conversation, buffer=buffer))


def _flushed(conversation: Conversation, now: int) -> Conversation:
    """Due now: what waits, and a turn that waits for its next attempt. A claimed turn is left to its claim."""
    buffer, turn = conversation.buffer, conversation.turn
    if buffer is not None:
        buffer = decided(replace(buffer, held_until=0), Deadline(now, "flushed"), now)
    if turn is not None and not turn.is_leased:
        turn = replace(turn, due_at=now)
    return replace(conversation, buffer=buffer, turn=turn)


def _cleared(conversation: Conversation, key: ConversationKey, now: int) -> Change:
    """What waits goes to the dead letters, so that even an order to forget loses nothing silently."""
    if conversation.buffer is None:
        return Change(conversation)
    closed = emptied(conversation, conversation.buffer, key, now)
    return Change(replace(conversation, buffer=None), replace(closed, status="cleared", reason="cleared by order"))
