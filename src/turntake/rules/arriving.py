"""What a message does to its conversation: it waits, amends what waits, is rejected since it is over a limit or the
agent is busy, or stops everything. Pure.

A stop word overtakes what waits. It is sealed at once into a turn of its own, which only has to be claimed, so that the
agent sees it by itself and before anything that comes later. What waited is closed, and so is the turn that was being
answered, unless its answer can no longer be called back: then the stop word is the next turn. Both keep their messages,
and are listed as stopped; neither is a dead letter, since the person does not want it answered. A stop word that has
something to stop is taken however much the person sends: it makes less to do, not more.
"""

from msgspec.structs import replace

from turntake.rules.buffer import arrival_at
from turntake.rules.busy import is_to_be_rejected, rejected
from turntake.rules.conversation import Change, Closed, Conversation, Progress, SealedTurn, Stop
from turntake.rules.deadline import Deadline, Decision
from turntake.rules.key import ConversationKey
from turntake.rules.over_limit import set_aside
from turntake.rules.records import Append
from turntake.rules.transitions import amend, emptied, next_resumed, receive, turn_id

_NO_ANSWER = Progress()
STOPPED = "stop word"
"""Why what a stop word ended is over."""


def arrive(conversation: Conversation, arrival: Append, now: int, size: int = 0) -> Change | Stop | None:
    """The conversation with one more message or amendment of `size` bytes; None for an amendment if nothing waits."""
    agent = arrival.agent or conversation.agent
    rules = arrival.rules_in(conversation)
    if arrival.message.is_amendment:
        amended = amend(conversation, rules, size)
        if amended is None:
            return None
        return set_aside(conversation, arrival.key, arrival.over, now) if arrival.over else Change(amended)
    cue = arrival.cue.of(agent).kind
    if arrival.over and not (cue == "stop" and _ended(conversation, arrival.key, now)):
        return set_aside(conversation, arrival.key, arrival.over, now)
    if cue == "stop":
        return stop(conversation, arrival.key, now, agent, size)
    if is_to_be_rejected(conversation, rules):
        seq = conversation.next_seq
        return rejected(conversation, turn_id(arrival.key, seq, seq, conversation.began_at), now)
    return receive(conversation, rules, now, agent, size, cue)


def stop(conversation: Conversation, key: ConversationKey, now: int, agent: str = "", size: int = 0) -> Stop:
    """A stop word, with the number `next_seq`: it is a turn by itself, due now, and nothing that waited is answered."""
    seq = conversation.next_seq
    began_at = now if seq == 1 else conversation.began_at
    due = Deadline(now, "stop word")
    turn = SealedTurn(
        id=turn_id(key, seq, seq, began_at),
        head=seq,
        tail=seq,
        due=due,
        claimed_at=now,
        last_at=arrival_at(conversation, now),
        due_at=now,
        decisions=(Decision(now, due.at, due.reason),),
        is_leased=False,
        is_committed=True,  # nothing that comes later merges with it
        attempt=0,
        agent=agent,
        size=size,
    )
    ended = _ended(conversation, key, now)
    ids = {closed.id for closed in ended}
    left = replace(
        conversation,
        next_seq=seq + 1,
        buffer=None,
        turn=None if conversation.turn is None or conversation.turn.id in ids else conversation.turn,
        agent=agent,
        began_at=began_at,
        resumed=(turn, *(other for other in conversation.resumed if other.id not in ids)),
    )
    return Stop(next_resumed(left), turn, ended)


def _ended(conversation: Conversation, key: ConversationKey, now: int) -> tuple[Closed, ...]:
    """All that a stop word ends: turns whose answers can be called back, then what waits."""
    ended = [
        Closed(turn.id, turn.head, turn.tail, "stopped", conversation.epoch + 1, now, turn, STOPPED)
        for turn in conversation.open_turns
        if _can_be_stopped(turn)
    ]
    if conversation.buffer is not None:
        waited = emptied(conversation, conversation.buffer, key, now)
        ended.append(replace(waited, status="stopped", reason=STOPPED))
    return tuple(ended)


def _can_be_stopped(turn: SealedTurn) -> bool:
    """Nothing of its answer has left or is final. A stop word that nobody took yet is ended too: the next one says the
    same, so that no more than one of them ever waits."""
    return not turn.is_committed or (not turn.attempt and turn.progress == _NO_ANSWER)
