"""How a turn opens, falls due, is claimed and settles.

Rule 1: everything that changes a conversation's state is a pure function from one value to the next, here or in a file
beside this one. Stores load a `Conversation`, call one of these, and write the result back in one atomic step.

    rules/arriving.py          which of these steps a message is, and what a stop word does
    rules/buffer.py            how a buffer grows
    rules/busy.py              what a message does while an answer is under way
    rules/touching.py          signs of life, and orders: hold, flush, clear
    rules/reports.py           what platforms report of replies that left
    rules/retried_letters.py   how messages come back out of the dead letters

    state        what holds                          its one deadline          left by
    ---------    --------------------------------    ----------------------    -----------------------------------
    idle         nothing waits, nothing is sealed    none                      receive -> collecting,
                                                                               requeue -> collecting,
                                                                               resume -> replying,
                                                                               stop -> answering
    collecting   `buffer` waits                      the buffer's              claim -> answering, clear -> idle,
                                                                               resume -> replying,
                                                                               stop -> answering
    answering    `turn` is sealed                    lease end, or retry       save -> replying or collecting,
                                                                               settle -> idle or
                                                                               collecting or replying,
                                                                               interrupt -> collecting or replying
    replying     `turn` is sealed and has a result   lease end, or retry       settle -> idle or collecting or
                                                                               answering

`docs/state_diagram.py` draws this table, and `tests/test_states.py` walks through the functions to see that it is true.
The state is never stored beside these facts; it is read off them, so the two cannot disagree.
What arrives while a turn is sealed waits in `buffer`, whose own timer runs; settling re-arms it in the same step.
An amendment is numbered like a message but moves nothing: no deadline, no count, no answer under way.
Each claim raises `epoch`; extend, save and settle of an older epoch are refused.
"""

import hashlib

from msgspec.structs import replace

from turntake.rules.buffer import (
    after_first_portion,
    first_portion,
    grown_buffer,
    with_room,
)
from turntake.rules.busy import (
    interrupted,
    is_stale,
    may_interrupt,
    noted_stale,
    with_absorbed,
    without_stale_answer,
)
from turntake.rules.conversation import (
    Answered,
    Buffer,
    Change,
    Closed,
    Conversation,
    Dead,
    LastTurn,
    Lease,
    Portion,
    Progress,
    Retry,
    SealedTurn,
    Settlement,
)
from turntake.rules.key import ConversationKey
from turntake.rules.records import Claim
from turntake.rules.reports import NOT_DELIVERED, unless_failed
from turntake.rules.rules import Rules, RulesByAgent

SHOWN = 1_000  # messages; nobody reads more at once, and a flood may leave hundreds of megabytes
PROMISE_BROKEN = "The agent said that it would complete the turn (202), and did not do so in time."
WORKER_STOPPED = "The process ended or stood still while it worked on this turn and on no other."


def turn_id(key: ConversationKey, head: int, tail: int, began_at: int = 0) -> str:
    """The same messages always make the same id, on every attempt and in every store.

    A conversation that was forgotten and begins anew repeats none, since it began at another time. The first four
    digits are the conversation's `shard_hash`, so that a store in shards knows where to look for it.
    """
    words = f"{key}|{head}|{tail}|{began_at}" if began_at else f"{key}|{head}|{tail}"
    return f"turn_{key.shard_hash:04x}" + hashlib.blake2s(words.encode(), digest_size=14).hexdigest()


def receive(
    conversation: Conversation, rules: Rules, now: int, agent: str = "", size: int = 0, cue: str = ""
) -> Change:
    """One more message, with the number `next_seq`. During an answer it waits, or interrupts where rules allow it."""
    if agent and agent != conversation.agent:
        conversation = replace(conversation, agent=agent)
    closed = None
    if may_interrupt(conversation, rules):
        conversation, closed = interrupted(conversation, now)
    # What interrupted a turn belongs to it: without it, the turn would come again under the same id and number.
    portioned = conversation if closed is not None else with_room(conversation, rules, 1, size)
    buffer = grown_buffer(portioned, rules, now, size, cue)
    began_at = now if conversation.next_seq == 1 else conversation.began_at
    turn = None if conversation.turn is None else noted_stale(conversation.turn, rules)
    grown = replace(conversation, next_seq=conversation.next_seq + 1, buffer=buffer, turn=turn, began_at=began_at)
    return _stopped(Change(grown, closed)) if closed is not None else Change(grown)


def amend(conversation: Conversation, rules: Rules, size: int = 0) -> Conversation | None:
    """One more amendment, with the number `next_seq`: it changes what waits, and never when that is due.

    None if nothing waits: what is sealed stays as it was handed over.
    """
    buffer = with_room(conversation, rules, 0, size).buffer
    if buffer is None:
        return None
    waiting = replace(buffer, amendments=buffer.amendments + 1, size=buffer.size + size)
    return replace(conversation, next_seq=conversation.next_seq + 1, buffer=waiting)


def claim(conversation: Conversation, key: ConversationKey, lease_ms: int, now: int) -> Conversation:
    """Somebody takes the due conversation: its messages are sealed, or a sealed turn is tried again.

    The epoch is at least the time: a server that lost the latest claim in a failover gives another number to the next.
    A turn that is still leased was held by somebody who said nothing more: its lease lapsed.
    A turn that already has its result is only sent, so its attempt number stays.
    """
    epoch = max(conversation.epoch + 1, now)
    if conversation.turn is None:
        return _sealed(conversation, key, epoch, lease_ms, now)
    turn = _lapsed(conversation.turn) if conversation.turn.is_leased else conversation.turn
    attempt = turn.attempt + (not turn.progress.is_final)
    taken = replace(turn, is_leased=True, lease="", due_at=now + lease_ms, attempt=attempt)
    return replace(conversation, epoch=epoch, turn=taken)


def holds(conversation: Conversation, epoch: int, turn_id: str) -> bool:
    """Whether this claim is still the latest. A late or handed-back one is, until someone takes over.

    Two claims by one epoch would need a server that lost its latest writes, and claims in the same millisecond before
    and after; then the turn still tells them apart, unless it is the same one.
    """
    return conversation.turn is not None and conversation.epoch == epoch and conversation.turn.id == turn_id


def extend(
    conversation: Conversation, claim: Claim, lease_ms: int, now: int, lease: Lease | None = None
) -> Conversation | None:
    """The lease runs `lease_ms` from now, as one of this kind if one is named.

    None if the claim was lost or handed back.
    """
    turn = _claimed(conversation, claim)
    if turn is None or not turn.is_leased:
        return None
    extended = replace(turn, due_at=now + lease_ms, lease=turn.lease if lease is None else lease)
    return replace(conversation, turn=extended)


def absorb(conversation: Conversation, claim: Claim, by_agent: RulesByAgent, now: int) -> Conversation | None:
    """What waits belongs to the turn that is being answered, as far as the rules let it; else nothing changes.

    None if the claim was lost or handed back.
    """
    turn = _claimed(conversation, claim)
    if turn is None or not turn.is_leased:
        return None
    return with_absorbed(conversation, by_agent.of(turn.agent), now)


def let_go(conversation: Conversation, now: int) -> Conversation | None:
    """Whoever held the turn is dead for certain: its lease ends now, and lapses at the next claim, as it would later.

    None if nobody held it, or if the agent promised to complete it: the agent may be well.
    """
    turn = conversation.turn
    if turn is None or not turn.is_leased or turn.lease == "promised" or turn.due_at <= now:
        return None
    return replace(conversation, turn=replace(turn, due_at=now))


def save(
    conversation: Conversation, claim: Claim, progress: Progress, lease_ms: int = 0, now: int = 0
) -> Change | None:
    """The answer so far, kept before any of it leaves; from here on nothing interrupts.

    The lease runs at least `lease_ms` from now: whoever saves is about to send, and nobody may take over meanwhile.
    None if the claim was lost or handed back, or if it takes back what is final or has left: the first answer stands.
    If the first reply would be stale, the turn is closed instead, and nothing may leave.
    """
    turn = _claimed(conversation, claim)
    if turn is None or not turn.is_leased or _takes_back(turn, progress):
        return None
    if is_stale(conversation, progress):
        return _stopped(without_stale_answer(conversation, progress, now))
    renewed = replace(turn, due_at=max(turn.due_at, now + lease_ms))
    return Change(replace(conversation, turn=_with_progress(renewed, progress, now)))


def settle(conversation: Conversation, claim: Claim, settlement: Settlement, now: int) -> Change | None:
    """The claim ends: answered, to be tried again, or dead. None if the claim was lost.

    A turn that waits for its next attempt may still be answered by the last one, whose answer came late.
    An answer that comes with the settlement and is stale does not count: the turn is closed as when it is saved.
    """
    turn, epoch = _claimed(conversation, claim), claim.epoch
    if turn is None:
        return None
    answer = _answer_in(settlement)
    if answer is not None and is_stale(conversation, answer):
        return _stopped(without_stale_answer(conversation, answer, now))
    if isinstance(settlement, Retry):
        waiting = _handed_back(turn, settlement, now)
        return None if waiting is None else Change(replace(conversation, turn=waiting))
    if isinstance(settlement, Answered):
        replies = settlement.replies or turn.progress.replies
        final = replace(turn.progress, replies=replies, sent=len(replies), is_final=True)
        if _takes_back(turn, final):
            return None
        turn = replace(turn, progress=final, answered_at=turn.answered_at or now)
        closed = unless_failed(Closed(turn.id, turn.head, turn.tail, "answered", epoch, now, turn), now)
    else:
        reason, error = settlement.reason, settlement.error or turn.error
        closed = Closed(turn.id, turn.head, turn.tail, "dead", epoch, now, turn, reason, error, turn.amendments)
        closed = replace(closed, trace=settlement.trace)
    last = LastTurn(closed.ending, now, turn.last_at)
    return Change(next_resumed(replace(conversation, turn=None, last=last)), closed)


def _answer_in(settlement: Settlement) -> Progress | None:
    """The answer that a settlement brings, if it brings one."""
    if isinstance(settlement, Answered):
        return Progress(settlement.replies, is_final=True)
    return settlement.progress if isinstance(settlement, Retry) else None


def _stopped(change: Change) -> Change:
    return Change(next_resumed(change.conversation), change.closed)


def next_resumed(conversation: Conversation) -> Conversation:
    """With the turn that waits for the place of the one that ended. Claims from before that count no more."""
    if conversation.turn is not None or not conversation.resumed:
        return conversation
    first, *rest = conversation.resumed
    return replace(conversation, epoch=conversation.epoch + 1, turn=first, resumed=tuple(rest))


def set_back(conversation: Conversation, by_ms: int) -> Conversation:
    """The clock was ahead by `by_ms` and was put right: what was to happen by it happens that much earlier.

    When messages arrived stays as it was noted, or they would change places with those that come now.
    """
    buffer, turn = conversation.buffer, conversation.turn
    if buffer is not None:
        buffer = replace(
            buffer,
            first_at=buffer.first_at - by_ms,
            due=replace(buffer.due, at=buffer.due.at - by_ms),
            due_by_messages=replace(buffer.due_by_messages, at=buffer.due_by_messages.at - by_ms),
            held_until=max(0, buffer.held_until - by_ms),
        )
    if turn is not None:
        turn = replace(turn, due_at=turn.due_at - by_ms)
    resumed = tuple(replace(each, due_at=each.due_at - by_ms) for each in conversation.resumed)
    return replace(conversation, buffer=buffer, turn=turn, resumed=resumed)


def _claimed(conversation: Conversation, claim: Claim) -> SealedTurn | None:
    return conversation.turn if holds(conversation, claim.epoch, claim.turn.id) else None


def _handed_back(turn: SealedTurn, retry: Retry, now: int) -> SealedTurn | None:
    if retry.progress is not None:
        if _takes_back(turn, retry.progress):
            return None
        turn = _with_progress(turn, retry.progress, now)
    elif not turn.is_leased:
        # It was handed back before. To say so again changes nothing; a shorter pause brings it forward.
        return replace(turn, due_at=min(turn.due_at, now + retry.after_ms))
    return replace(
        turn,
        is_leased=False,
        lease="",
        due_at=now + retry.after_ms,
        attempt=turn.attempt - (not retry.is_tried and not turn.progress.is_final),
        failures=turn.failures + retry.is_failure,
        waits=turn.waits + retry.is_away,
        error=retry.error or turn.error,
    )


def _lapsed(turn: SealedTurn) -> SealedTurn:
    """Its lease ended without a word. That counts as a failure only if no other turn can have been the cause."""
    if turn.lease == "promised":
        return replace(turn, failures=turn.failures + 1, error=PROMISE_BROKEN)
    lapsed = replace(turn, lapses=turn.lapses + 1)
    return replace(lapsed, failures=turn.failures + 1, error=WORKER_STOPPED) if turn.lease == "alone" else lapsed


def _with_progress(turn: SealedTurn, progress: Progress, now: int) -> SealedTurn:
    """Once the answer is final, sending it has attempts of its own."""
    if progress.is_final and not turn.progress.is_final:
        turn = replace(turn, failures=0, waits=0, answered_at=now)
    return replace(turn, progress=progress, is_committed=True)


def _takes_back(turn: SealedTurn, progress: Progress) -> bool:
    """Whether `progress` contradicts an answer that is final, or forgets a reply that left."""
    known = turn.progress
    is_other = known.is_final and (progress.replies != known.replies or not progress.is_final)
    left = known.replies[: known.sent]
    return is_other or progress.sent < known.sent or progress.replies[: known.sent] != left


def _sealed(conversation: Conversation, key: ConversationKey, epoch: int, lease_ms: int, now: int) -> Conversation:
    buffer = conversation.buffer
    assert buffer is not None, "only a due conversation is claimed, and an idle one is never due"
    portion = first_portion(conversation, buffer)
    tail = portion.end - 1
    turn = SealedTurn(
        id=turn_id(key, buffer.head, tail, conversation.began_at),
        head=buffer.head,
        tail=tail,
        due=buffer.due,
        claimed_at=now,
        last_at=buffer.last_at,
        due_at=now + lease_ms,
        decisions=buffer.decisions,
        interrupts=buffer.interrupts,
        agent=conversation.agent,
        amendments=portion.amendments,
        size=portion.size,
    )
    rest = after_first_portion(conversation, buffer, portion)
    return replace(conversation, epoch=epoch, turn=turn, buffer=rest)


def emptied(conversation: Conversation, buffer: Buffer, key: ConversationKey, now: int) -> Closed:
    """All that waits, as one range of messages that nobody answers; whoever empties the buffer says why."""
    head, tail = buffer.head, conversation.next_seq - 1
    id, epoch = turn_id(key, head, tail, conversation.began_at), conversation.epoch
    full = sum(portion.amendments for portion in buffer.portions)
    portions = (*buffer.portions, Portion(tail + 1, buffer.amendments - full, buffer.size))
    closed = Closed(id, head, tail, "", epoch, now, None, amendments=buffer.amendments)
    return replace(closed, portions=portions)


def open_ranges(conversation: Conversation) -> tuple[range, ...]:
    """The numbers of the messages that are not settled yet, the oldest first: the sealed ones, then those that wait."""
    buffer = conversation.buffer
    turns = sorted(conversation.open_turns, key=lambda turn: turn.head)
    sealed = tuple(range(turn.head, turn.tail + 1) for turn in turns)
    return sealed if buffer is None else (*sealed, range(buffer.head, conversation.next_seq))


def shown_ranges(conversation: Conversation) -> tuple[range, ...]:
    """Of each open range, what is shown to whoever looks at the conversation: the first, who are next."""
    return tuple(numbers[:SHOWN] for numbers in open_ranges(conversation))


def is_same(closed: Closed, claim: Claim, settlement: Settlement) -> bool:
    """Whether a settlement that comes again, by the claim that made it, is the one that closed the turn."""
    if (closed.epoch, closed.id) != (claim.epoch, claim.turn.id):
        return False
    if isinstance(settlement, Answered):
        replies, turn = settlement.replies, closed.turn
        is_answered = closed.status == "answered" or closed.reason == NOT_DELIVERED
        return is_answered and turn is not None and replies in ((), turn.progress.replies)
    return isinstance(settlement, Dead) and closed.status == "dead"
