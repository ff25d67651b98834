"""How a turn opens, falls due, is claimed and settles.

Rule 1: everything that changes a conversation's state lives here, in pure functions from one value to the next.
Stores load a `Conversation`, call one of these, and write the result back in one atomic step.

    state        what holds                          its one deadline          left by
    ---------    --------------------------------    ----------------------    -----------------------------------
    idle         nothing waits, nothing is sealed    none                      receive -> collecting,
                                                                               requeue -> collecting,
                                                                               resume -> replying
    collecting   `buffer` waits                      the buffer's              claim -> answering, clear -> idle,
                                                                               resume -> replying
    answering    `turn` is sealed                    lease end, or retry       save -> replying, settle -> idle or
                                                                               collecting or replying,
                                                                               interrupt -> collecting or replying
    replying     `turn` is sealed and has a result   lease end, or retry       settle -> idle or collecting

`docs/state_diagram.py` draws this table, and `tests/test_states.py` walks through the functions to see that it is true.
The state is never stored beside these facts; it is read off them, so the two cannot disagree.
What arrives while a turn is sealed waits in `buffer`, whose own timer runs; settling re-arms it in the same step.
An amendment is numbered like a message but moves nothing: no deadline, no count, no answer under way.
Each claim raises `epoch`; extend, save and settle of an older epoch are refused.
"""

import hashlib

from msgspec.structs import replace

from turntake.rules.conversation import (
    Answered,
    Buffer,
    Change,
    Closed,
    Conversation,
    Dead,
    Lease,
    Portion,
    Progress,
    ReplyReport,
    Retry,
    SealedTurn,
    Settlement,
    Touch,
)
from turntake.rules.deadline import Deadline, Decision, after_activity, after_composing, after_message
from turntake.rules.key import ConversationKey
from turntake.rules.records import Append, Claim
from turntake.rules.rules import Rules

DECISIONS_KEPT = 100
RESENT_KEPT = 100  # as many as an answer has parts; platforms repeat a report within hours
PROMISE_BROKEN = "The agent said that it would complete the turn (202), and did not do so in time."
WORKER_STOPPED = "The process ended or stood still while it worked on this turn and on no other."
NOT_DELIVERED = "not delivered"
_HOW_FAR = ("sent", "delivered", "read")
"""Each says more than those before it."""
_NOTED_ONCE = ("activity", "held", "max wait", "max messages", "capacity")


def turn_id(key: ConversationKey, head: int, tail: int, began_at: int = 0) -> str:
    """The same messages always make the same id, on every attempt and in every store.

    A conversation that was forgotten and begins anew repeats none, since it began at another time. The first four
    digits are the conversation's `shard_hash`, so that a store in shards knows where to look for it.
    """
    words = f"{key}|{head}|{tail}|{began_at}" if began_at else f"{key}|{head}|{tail}"
    return f"turn_{key.shard_hash:04x}" + hashlib.blake2s(words.encode(), digest_size=14).hexdigest()


def arrival_at(conversation: Conversation, now: int) -> int:
    """What is noted as a message's arrival: now, and never before the one it follows, whatever the clock says.

    Messages of a turn are put in order by it. Deadlines count from now, also after a clock was set back.
    """
    if conversation.buffer is not None:
        return max(now, conversation.buffer.last_at)
    return now if conversation.turn is None else max(now, conversation.turn.last_at)


def arrive(conversation: Conversation, arrival: Append, now: int, size: int = 0) -> Change | None:
    """The conversation with one more message or amendment of `size` bytes; None for an amendment if nothing waits."""
    if not arrival.message.is_amendment:
        return receive(conversation, arrival.rules, now, arrival.agent, size)
    amended = amend(conversation, arrival.rules, size)
    return None if amended is None else Change(amended)


def receive(conversation: Conversation, rules: Rules, now: int, agent: str = "", size: int = 0) -> Change:
    """One more message, with the number `next_seq`. During an answer it waits, or interrupts where rules allow it."""
    if agent and agent != conversation.agent:
        conversation = replace(conversation, agent=agent)
    closed = None
    if _may_interrupt(conversation, rules):
        conversation, closed = _unseal(conversation, now)
    # What interrupted a turn belongs to it: without it, the turn would come again under the same id and number.
    portioned = conversation if closed is not None else _portioned(conversation, rules, 1, size)
    buffer = _grown(portioned, rules, now, size)
    began_at = now if conversation.next_seq == 1 else conversation.began_at
    grown = replace(conversation, next_seq=conversation.next_seq + 1, buffer=buffer, began_at=began_at)
    return Change(grown if closed is None else _next_resumed(grown), closed)


def amend(conversation: Conversation, rules: Rules, size: int = 0) -> Conversation | None:
    """One more amendment, with the number `next_seq`: it changes what waits, and never when that is due.

    None if nothing waits: what is sealed stays as it was handed over.
    """
    buffer = _portioned(conversation, rules, 0, size).buffer
    if buffer is None:
        return None
    waiting = replace(buffer, amendments=buffer.amendments + 1, size=buffer.size + size)
    return replace(conversation, next_seq=conversation.next_seq + 1, buffer=waiting)


def touch(conversation: Conversation, key: ConversationKey, touch: Touch, rules: Rules, now: int) -> Change:
    """The conversation after a sign or an order. Composing never creates a turn and never makes one due earlier."""
    if touch.kind == "flush":
        return Change(_flushed(conversation, now))
    if touch.kind == "clear":
        return _cleared(conversation, key, now)
    buffer = conversation.buffer
    if buffer is None:
        return Change(conversation)
    if touch.kind == "hold":
        due = buffer.due_by_messages if buffer.due.reason == "held" else buffer.due
        buffer = replace(buffer, held_until=now + touch.duration_ms)
    elif touch.kind == "stopped":
        due = after_composing(rules, buffer.due, buffer.due_by_messages, now)
    else:
        composing_ms = touch.duration_ms or rules.activity_ms
        due = after_activity(rules, conversation.waiting, buffer.first_at, buffer.due, composing_ms, now)
    due = buffer.due if _is_ordered(buffer) and touch.kind != "hold" else _with_hold(buffer, due)
    if due != buffer.due:
        buffer = _decided(buffer, due, now)
    return Change(replace(conversation, buffer=buffer))


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
) -> Conversation | None:
    """The answer so far, kept before any of it leaves; from here on nothing interrupts.

    The lease runs at least `lease_ms` from now: whoever saves is about to send, and nobody may take over meanwhile.
    None if the claim was lost or handed back, or if it takes back what is final or has left: the first answer stands.
    """
    turn = _claimed(conversation, claim)
    if turn is None or not turn.is_leased or _takes_back(turn, progress):
        return None
    renewed = replace(turn, due_at=max(turn.due_at, now + lease_ms))
    return replace(conversation, turn=_with_progress(renewed, progress))


def settle(conversation: Conversation, claim: Claim, settlement: Settlement, now: int) -> Change | None:
    """The claim ends: answered, to be tried again, or dead. None if the claim was lost.

    A turn that waits for its next attempt may still be answered by the last one, whose answer came late.
    """
    turn, epoch = _claimed(conversation, claim), claim.epoch
    if turn is None:
        return None
    if isinstance(settlement, Retry):
        waiting = _handed_back(turn, settlement, now)
        return None if waiting is None else Change(replace(conversation, turn=waiting))
    if isinstance(settlement, Answered):
        replies = settlement.replies or turn.progress.replies
        final = replace(turn.progress, replies=replies, sent=len(replies), is_final=True)
        if _takes_back(turn, final):
            return None
        turn = replace(turn, progress=final)
        closed = _unless_failed(Closed(turn.id, turn.head, turn.tail, "answered", epoch, now, turn), now)
    else:
        reason, error = settlement.reason, settlement.error or turn.error
        closed = Closed(turn.id, turn.head, turn.tail, "dead", epoch, now, turn, reason, error, turn.amendments)
        closed = replace(closed, trace=settlement.trace)
    return Change(_next_resumed(replace(conversation, turn=None)), closed)


def resume(conversation: Conversation, letter: Closed, now: int) -> Conversation:
    """A dead letter whose answer is complete: its turn is open again under its own id, and what has not left is sent.

    If another turn is under way, it waits for that one, and goes before what is buffered.
    """
    assert letter.turn is not None, "only a turn has an answer"
    reports = tuple(report for report in letter.turn.reports if report.status != "failed")
    failed_ids = (report.message_id for report in letter.turn.undelivered if report.message_id)
    resent = (*letter.turn.resent, *failed_ids)[-RESENT_KEPT:]
    untried = replace(letter.turn, failures=0, lapses=0, waits=0, error="", is_committed=True)
    untried = replace(untried, reports=reports, resent=resent)
    again = replace(untried, is_leased=False, lease="", claimed_at=now, due_at=now)
    return _next_resumed(replace(conversation, resumed=(*conversation.resumed, again)))


def _next_resumed(conversation: Conversation) -> Conversation:
    """With a resumed turn in the place of the one that ended. Claims from before it was a dead letter count no more."""
    if conversation.turn is not None or not conversation.resumed:
        return conversation
    first, *rest = conversation.resumed
    return replace(conversation, epoch=conversation.epoch + 1, turn=first, resumed=tuple(rest))


def report(conversation: Conversation, turn_id: str, report: ReplyReport) -> Conversation | None:
    """A platform says what became of a reply of the open turn; None if that is nothing new, or another turn is open."""
    turn = conversation.turn
    noted = None if turn is None or turn.id != turn_id else _with_report(turn, report)
    return None if noted is None else replace(conversation, turn=noted)


def report_closed(closed: Closed, report: ReplyReport, now: int) -> Closed | None:
    """The same of a turn that is over. If the reply failed, the turn becomes a dead letter, which has its answer.

    None if that is nothing new, or if the turn is neither answered nor a dead letter for this very reason.
    """
    is_answer = closed.status == "answered" or (closed.is_letter and closed.reason == NOT_DELIVERED)
    noted = _with_report(closed.turn, report) if closed.turn is not None and is_answer else None
    return None if noted is None else _unless_failed(replace(closed, turn=noted), now)


def requeue(conversation: Conversation, count: int, amendments: int, now: int) -> Conversation:
    """`count` messages, of which some are `amendments`, come back from the dead letters, with the next numbers, and are
    due at once."""
    buffer = conversation.buffer
    due = Deadline(now, "retried")
    if buffer is None:
        buffer = Buffer(conversation.next_seq, now, now, due, due, ())
    waiting = replace(buffer, due_by_messages=due, held_until=0, amendments=buffer.amendments + amendments)
    buffer = _decided(waiting, due, now)
    return replace(conversation, next_seq=conversation.next_seq + count, buffer=buffer)


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


def _with_report(turn: SealedTurn, report: ReplyReport) -> SealedTurn | None:
    """Reports come late, twice and in any order, so that one may say less than is known: then None."""
    known = next((each for each in turn.reports if each.index == report.index), None)
    is_old = report.status == "failed" and report.message_id in turn.resent
    is_news = not is_old and (known is None or _is_newer(report, known))
    if not is_news or not 0 <= report.index < len(turn.progress.replies):
        return None
    others = (each for each in turn.reports if each.index != report.index)
    return replace(turn, reports=tuple(sorted((*others, report), key=lambda each: each.index)))


def _is_newer(report: ReplyReport, known: ReplyReport) -> bool:
    if report.message_id != known.message_id:
        return report.at > known.at  # the reply was sent again since
    if "failed" in (report.status, known.status):
        return known.status == "sent"  # what arrived did not fail, and what failed does not arrive
    return _HOW_FAR.index(report.status) > _HOW_FAR.index(known.status)


def _unless_failed(closed: Closed, now: int) -> Closed:
    """An answered turn; or a dead letter if a platform reported that a reply failed. What failed has yet to be sent."""
    turn = closed.turn
    if turn is None or not turn.reports or not turn.undelivered:
        return closed
    first = turn.undelivered[0]
    unsent = replace(turn, progress=replace(turn.progress, sent=min(first.index, turn.progress.sent)))
    at = closed.at if closed.is_letter else now
    noted = replace(closed, status="dead", at=at, turn=unsent, reason=NOT_DELIVERED, error=first.error)
    return replace(noted, amendments=turn.amendments)


def _claimed(conversation: Conversation, claim: Claim) -> SealedTurn | None:
    return conversation.turn if holds(conversation, claim.epoch, claim.turn.id) else None


def _handed_back(turn: SealedTurn, retry: Retry, now: int) -> SealedTurn | None:
    if retry.progress is not None:
        if _takes_back(turn, retry.progress):
            return None
        turn = _with_progress(turn, retry.progress)
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


def _with_progress(turn: SealedTurn, progress: Progress) -> SealedTurn:
    """Once the answer is final, sending it has attempts of its own."""
    is_new = progress.is_final and not turn.progress.is_final
    counts = (0, 0) if is_new else (turn.failures, turn.waits)
    return replace(turn, progress=progress, is_committed=True, failures=counts[0], waits=counts[1])


def _takes_back(turn: SealedTurn, progress: Progress) -> bool:
    """Whether `progress` contradicts an answer that is final, or forgets a reply that left."""
    known = turn.progress
    is_other = known.is_final and (progress.replies != known.replies or not progress.is_final)
    left = known.replies[: known.sent]
    return is_other or progress.sent < known.sent or progress.replies[: known.sent] != left


def _grown(conversation: Conversation, rules: Rules, now: int, size: int) -> Buffer:
    buffer = conversation.buffer
    if buffer is None:
        due = after_message(rules, 1, now, None, now)
        decisions = (Decision(now, due.at, due.reason),)
        last_at = arrival_at(conversation, now)
        is_single = not rules.enabled
        return Buffer(conversation.next_seq, now, last_at, due, due, decisions, one_at_a_time=is_single, size=size)
    due_by_messages = after_message(rules, conversation.waiting + 1, buffer.first_at, buffer.last_at, now)
    if buffer.portions:
        due_by_messages = Deadline(now, "capacity")
    due = due_by_messages if due_by_messages.reason == "capacity" else _with_hold(buffer, due_by_messages)
    if _is_ordered(buffer):
        due = buffer.due
    return replace(
        buffer,
        last_at=arrival_at(conversation, now),
        due=due,
        due_by_messages=due_by_messages,
        decisions=_noted(buffer.decisions, due, now),
        one_at_a_time=not rules.enabled,
        size=buffer.size + size,
    )


def _portioned(conversation: Conversation, rules: Rules, more: int, size: int) -> Conversation:
    """With room for `more` messages, or an amendment, of `size` bytes. What is too much for the turn that the latest
    would be in begins the next one, so that no turn is larger than the rules allow, however much waits."""
    buffer = conversation.buffer
    if buffer is None:
        return conversation
    amendments = buffer.amendments - sum(portion.amendments for portion in buffer.portions)
    numbers = conversation.next_seq - buffer.last_portion_from
    has_room = numbers - amendments + more <= rules.capacity and buffer.size + size <= rules.max_turn_bytes
    if has_room or not numbers:
        return conversation
    full = Portion(conversation.next_seq, amendments, buffer.size)
    return replace(conversation, buffer=replace(buffer, portions=(*buffer.portions, full), size=0))


def _first_portion(conversation: Conversation, buffer: Buffer) -> Portion:
    """What the next turn is made of."""
    # What an interruption merged stays merged: sealed alone again, a message would repeat a turn's id and attempt.
    # An amendment may be of any message that waits, and is not a turn of its own: with one among them, all go together.
    if buffer.one_at_a_time and not buffer.interrupts and not buffer.amendments:
        return Portion(buffer.head + 1, 0, 0)
    return buffer.portions[0] if buffer.portions else Portion(conversation.next_seq, buffer.amendments, buffer.size)


def _sealed(conversation: Conversation, key: ConversationKey, epoch: int, lease_ms: int, now: int) -> Conversation:
    buffer = conversation.buffer
    assert buffer is not None, "only a due conversation is claimed, and an idle one is never due"
    portion = _first_portion(conversation, buffer)
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
    rest = None
    if portion.end < conversation.next_seq:
        rest = replace(
            buffer,
            head=portion.end,
            decisions=buffer.decisions[-1:],
            interrupts=0,
            amendments=buffer.amendments - portion.amendments,
            portions=tuple(each for each in buffer.portions if each.end > portion.end),
        )
    return replace(conversation, epoch=epoch, turn=turn, buffer=rest)


def _may_interrupt(conversation: Conversation, rules: Rules) -> bool:
    """A turn can only merge with what follows it directly: messages cleared in between stay out of it."""
    turn, buffer = conversation.turn, conversation.buffer
    return (
        turn is not None
        and rules.enabled
        and rules.on_busy == "interrupt"
        and not turn.is_committed
        and turn.interrupts < rules.max_interrupts
        and turn.tail + 1 == (conversation.next_seq if buffer is None else buffer.head)
    )


def _unseal(conversation: Conversation, now: int) -> Change:
    """The sealed range waits again, in front of what came since; the person's silence and max wait start anew."""
    turn, buffer = conversation.turn, conversation.buffer
    assert turn is not None
    waiting = Buffer(
        head=turn.head,
        first_at=now,
        last_at=buffer.last_at if buffer else turn.last_at,
        due=Deadline(now, "silence"),
        due_by_messages=Deadline(now, "silence"),
        decisions=turn.decisions + (buffer.decisions if buffer else ()),
        held_until=buffer.held_until if buffer else 0,
        interrupts=turn.interrupts + 1,
        amendments=turn.amendments + (buffer.amendments if buffer else 0),
        portions=_portions_with(turn, buffer),
        size=(buffer.size if buffer else 0) + (0 if buffer and buffer.portions else turn.size),
    )
    epoch = conversation.epoch + 1
    closed = Closed(turn.id, turn.head, turn.tail, "interrupted", epoch, now, turn)
    return Change(replace(conversation, epoch=epoch, turn=None, buffer=waiting), closed)


def _portions_with(turn: SealedTurn, buffer: Buffer | None) -> tuple[Portion, ...]:
    """The portions of a buffer that a turn is put back in front of: it merges with the first of them."""
    if buffer is None or not buffer.portions:
        return ()
    first, *others = buffer.portions
    return (Portion(first.end, first.amendments + turn.amendments, first.size + turn.size), *others)


def _flushed(conversation: Conversation, now: int) -> Conversation:
    """Due now: what waits, and a turn that waits for its next attempt. A claimed turn is left to its claim."""
    buffer, turn = conversation.buffer, conversation.turn
    if buffer is not None:
        buffer = _decided(replace(buffer, held_until=0), Deadline(now, "flushed"), now)
    if turn is not None and not turn.is_leased:
        turn = replace(turn, due_at=now)
    return replace(conversation, buffer=buffer, turn=turn)


def _cleared(conversation: Conversation, key: ConversationKey, now: int) -> Change:
    """What waits goes to the dead letters, so that even an order to forget loses nothing silently."""
    buffer = conversation.buffer
    if buffer is None:
        return Change(conversation)
    head, tail = buffer.head, conversation.next_seq - 1
    id, epoch = turn_id(key, head, tail, conversation.began_at), conversation.epoch
    closed = Closed(id, head, tail, "cleared", epoch, now, None, "cleared by order", amendments=buffer.amendments)
    return Change(replace(conversation, buffer=None), closed)


def _is_ordered(buffer: Buffer) -> bool:
    """Somebody ordered it to go: what comes before it is claimed goes along and does not delay it."""
    return buffer.due.reason in ("flushed", "retried")


def _with_hold(buffer: Buffer, due: Deadline) -> Deadline:
    return Deadline(buffer.held_until, "held") if buffer.held_until > due.at else due


def _decided(buffer: Buffer, due: Deadline, now: int) -> Buffer:
    return replace(buffer, due=due, decisions=_noted(buffer.decisions, due, now))


def _noted(decisions: tuple[Decision, ...], due: Deadline, now: int) -> tuple[Decision, ...]:
    """With the new deadline; a run of signs or of overfull buffers keeps only its latest note."""
    if decisions and decisions[-1].reason == due.reason and due.reason in _NOTED_ONCE:
        decisions = decisions[:-1]
    return (*decisions[1 - DECISIONS_KEPT :], Decision(now, due.at, due.reason))


def open_ranges(conversation: Conversation) -> tuple[range, ...]:
    """The numbers of the messages that are not settled yet: the sealed ones, then those that wait."""
    buffer = conversation.buffer
    sealed = tuple(range(turn.head, turn.tail + 1) for turn in conversation.open_turns)
    return sealed if buffer is None else (*sealed, range(buffer.head, conversation.next_seq))


def is_same(closed: Closed, claim: Claim, settlement: Settlement) -> bool:
    """Whether a settlement that comes again, by the claim that made it, is the one that closed the turn."""
    if (closed.epoch, closed.id) != (claim.epoch, claim.turn.id):
        return False
    if isinstance(settlement, Answered):
        replies, turn = settlement.replies, closed.turn
        is_answered = closed.status == "answered" or closed.reason == NOT_DELIVERED
        return is_answered and turn is not None and replies in ((), turn.progress.replies)
    return isinstance(settlement, Dead) and closed.status == "dead"
