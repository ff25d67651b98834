"""Whether a history keeps the promises: nothing lost, nothing twice, in order, one answer.

Each check stands beside the promise it is for in docs/promises.md. `chaos/allowed.py` says what a fault excuses: a
conversation that a store forgot a part of is judged by what must hold all the same, and by nothing else.
"""

from collections import Counter, defaultdict
from itertools import pairwise

from chaos.history import HandOver, History, Limits, Violation, conversation_of, number_of
from chaos.punctuality import early, late
from chaos.seen import Seen


def violations(history: History, limits: Limits) -> list[Violation]:
    """Every broken promise; none is what we want."""
    seen = Seen(history, limits)
    checks = (
        lost,
        in_two_turns,
        disordered,
        numbered_wrongly,
        overlapping,
        answered_twice,
        changed,
        attempted_wrongly,
        phantoms,
        phantom_replies,
        taken_twice,
        refused,
        repeated_replies,
        shuffled_replies,
        unanswered,
        buried,
        early,
        late,
    )
    found = [violation for check in checks for violation in check(seen)]
    return [violation for violation in found if not _is_excused(seen, violation)]


# What cannot hold in a conversation of which a store lost the latest writes. That a message which was acknowledged
# before or afterwards is lost, unanswered or late is never excused.
_OF_UNDONE_WORK = {
    "two turns",
    "twice in one turn",
    "order",
    "numbers",
    "overlap",
    "two answers",
    "changed",
    "attempt",
    "phantom reply",
    "repeated reply",
    "reply order",
}


def _is_excused(seen: Seen, violation: Violation) -> bool:
    if violation.promise == "dedupe":
        return any(seen.may_have_been_lost(message) for message in violation.about)
    return violation.promise in _OF_UNDONE_WORK and violation.conversation in seen.undone


def lost(seen: Seen) -> list[Violation]:
    """Acknowledged, and handed over in no turn."""
    return [
        Violation("lost", conversation_of(m), f"{m} was acknowledged and never handed over", (m,))
        for m in seen.acknowledged_at
        if m not in seen.first_handed and not seen.may_be_lost(m)
    ]


def in_two_turns(seen: Seen) -> list[Violation]:
    """Handed over in two turns, or twice in one; also of those that nobody acknowledged."""
    turns: defaultdict[str, set[str]] = defaultdict(set)
    twice: list[Violation] = []
    for call in seen.history.hand_overs:
        for message, count in Counter(call.message_ids).items():
            turns[message].add(call.turn_id)
            if count > 1:
                says = f"{message} is {count} times in {call.turn_id}"
                twice.append(Violation("twice in one turn", call.conversation, says, (message, call.turn_id)))
    return twice + [
        Violation("two turns", conversation_of(m), f"{m} is in {sorted(ids)}", (m, *sorted(ids)))
        for m, ids in turns.items()
        if len(ids) > 1
    ]


def disordered(seen: Seen) -> list[Violation]:
    """Out of order, of those whose acknowledgement forced an order. One that was given up may come at any time."""
    found: list[Violation] = []
    for conversation in list(seen.conversations):
        calls = seen.first_calls(conversation)
        known = [m for call in calls for m in call.message_ids if m in seen.acknowledged_at]
        found += [
            Violation("order", conversation, f"{after} follows {before}", (before, after))
            for before, after in pairwise(known)
            if number_of(after) <= number_of(before)
        ]
    return found


def numbered_wrongly(seen: Seen) -> list[Violation]:
    """The numbers that the store gave do not count up from 1 without a hole, turn after turn."""
    found: list[Violation] = []
    for conversation in list(seen.conversations):
        last = 0
        for call in seen.first_calls(conversation):
            if call.seqs != tuple(range(last + 1, last + 1 + len(call.message_ids))):
                says = f"{call.turn_id} has numbers {call.seqs} after {last}"
                found.append(Violation("numbers", conversation, says, (call.turn_id,)))
            last = max(last, *call.seqs)
    return found


def overlapping(seen: Seen) -> list[Violation]:
    """Two handlers at once, although nothing could have taken the claim from the first."""
    return [
        Violation("overlap", a.conversation, f"{_name(b)} began while {_name(a)} went on", (a.turn_id, b.turn_id))
        for a, b in overlaps(seen)
        if not seen.is_disturbed(a.at, b.at)
    ]


def overlaps(seen: Seen) -> list[tuple[HandOver, HandOver]]:
    """Pairs of hand-overs of one conversation that were under way together."""
    found: list[tuple[HandOver, HandOver]] = []
    for calls in seen.conversations.values():
        running: list[HandOver] = []
        for call in calls:
            running = [other for other in running if other.ended_at > call.at]
            found += [(other, call) for other in running]
            running.append(call)
    return found


def answered_twice(seen: Seen) -> list[Violation]:
    """What the person got for one turn comes from more than one attempt."""
    found: list[Violation] = []
    for turn_id, replies in seen.replies.items():
        texts = {reply.text for reply in replies}
        givers = {_name(call) for call in seen.turns.get(turn_id, []) if texts & set(call.answer)}
        if len(givers) > 1:
            says = f"replies of {sorted(givers)} were delivered"
            found.append(Violation("two answers", seen.conversation(turn_id), says, (turn_id,)))
    return found


def changed(seen: Seen) -> list[Violation]:
    """One turn was handed over with different bytes."""
    return [
        Violation("changed", calls[0].conversation, f"{turn_id} was handed over with different bytes", (turn_id,))
        for turn_id, calls in seen.turns.items()
        if len({call.digest for call in calls}) > 1
    ]


def attempted_wrongly(seen: Seen) -> list[Violation]:
    """Attempts do not count up. Who was paused after claiming may call late, never under a used number."""
    found: list[Violation] = []
    for turn_id, calls in seen.turns.items():
        for place, call in enumerate(calls):
            earlier = calls[:place]
            is_repeated = any(other.attempt == call.attempt for other in earlier)
            is_behind = any(other.attempt > call.attempt for other in earlier)
            if is_repeated or (is_behind and not seen.is_disturbed(call.at, call.at)):
                says = f"{_name(call)} after {[other.attempt for other in earlier]}"
                found.append(Violation("attempt", call.conversation, says, (turn_id,)))
    return found


def phantoms(seen: Seen) -> list[Violation]:
    """Handed over, though nobody sent it, or in a conversation that is not its own."""
    return [
        Violation("phantom", call.conversation, f"{message} in {call.turn_id}", (message, call.turn_id))
        for call in seen.history.hand_overs
        for message in call.message_ids
        if message not in seen.sent_at or conversation_of(message) != call.conversation
    ]


def phantom_replies(seen: Seen) -> list[Violation]:
    """A reply that the agent gave to no attempt at this turn, or gave in another place."""
    return [
        Violation("phantom reply", seen.conversation(r.turn_id), f"{r.text!r} as {r.key}", (r.turn_id,))
        for r in seen.history.replies
        if not any(call.answer[r.index : r.index + 1] == (r.text,) for call in seen.turns.get(r.turn_id, []))
    ]


def taken_twice(seen: Seen) -> list[Violation]:
    """A message was taken as new more than once, or again after it was acknowledged."""
    found: list[Violation] = []
    for message, sendings in seen.sendings.items():
        known_at = seen.acknowledged_at.get(message)
        anew = [s for s in sendings if s.status == "buffered"]
        again = [s for s in anew if known_at is not None and s.at > known_at]
        if len(anew) > 1 or again:
            says = f"{message} was taken as new {len(anew)} times, {len(again)} of them after its acknowledgement"
            found.append(Violation("dedupe", conversation_of(message), says, (message,)))
    return found


def refused(seen: Seen) -> list[Violation]:
    """Whoever sends was told something else than that it is stored or is to come again (503, or no word at all)."""
    return [
        Violation("refused", conversation_of(s.message), f"{s.message} was answered {s.status}", (s.message,))
        for s in seen.history.sendings
        if s.status.isdecimal() and s.status != "503"
    ]


def repeated_replies(seen: Seen) -> list[Violation]:
    """Another key or text in the place of a reply, or the same again though whoever sent it lived to note it."""
    found: list[Violation] = []
    for turn_id, replies in seen.replies.items():
        places: dict[int, tuple[str, str, float]] = {}
        for reply in replies:
            key, text, at = places.get(reply.index, (reply.key, reply.text, reply.at))
            is_other = (key, text) != (reply.key, reply.text)
            is_unprovoked = reply.index in places and not seen.is_disturbed(at, reply.at)
            if is_other or is_unprovoked:
                says = f"{reply.key} {reply.text!r} at place {reply.index}, after {key} {text!r}"
                found.append(Violation("repeated reply", seen.conversation(turn_id), says, (turn_id,)))
            places.setdefault(reply.index, (reply.key, reply.text, reply.at))
    return found


def shuffled_replies(seen: Seen) -> list[Violation]:
    """The first replies of each place did not come in the order of their places."""
    return [
        Violation("reply order", seen.conversation(turn_id), f"{turn_id} got {first_seen}", (turn_id,))
        for turn_id, replies in seen.replies.items()
        if (first_seen := list(dict.fromkeys(reply.index for reply in replies))) != sorted(first_seen)
    ]


def unanswered(seen: Seen) -> list[Violation]:
    """A turn that got no whole answer. Where work was undone, a message that is in no turn which got one."""
    answered = {turn_id for turn_id in seen.turns if _is_answered(seen, turn_id)}
    turns = [
        Violation("unanswered", calls[0].conversation, f"{turn_id} got no whole answer", (turn_id,))
        for turn_id, calls in seen.turns.items()
        if turn_id not in answered and calls[0].conversation not in seen.undone and not _is_poisonous(seen, turn_id)
    ]
    heard = {message for turn_id in answered for call in seen.turns[turn_id] for message in call.message_ids}
    messages = [
        Violation("unanswered", conversation_of(m), f"{m} is in no turn that got a whole answer", (m,))
        for m in seen.first_handed
        if conversation_of(m) in seen.undone and m not in heard and m in seen.acknowledged_at
        if not seen.may_be_lost(m) and m not in seen.history.poisonous
    ]
    return turns + messages


def buried(seen: Seen) -> list[Violation]:
    """A dead letter, though the agent never gave anything up; or a message that kills its workers and is none."""
    letters = {message for letter in seen.history.letters for message in letter.message_ids}
    return [
        Violation(
            "buried", conversation_of(letter.message_ids[0]), f"{letter.turn_id}: {letter.reason}", (letter.turn_id,)
        )
        for letter in seen.history.letters
        if not seen.history.poisonous & set(letter.message_ids)
    ] + [
        Violation("poison", conversation_of(message), f"{message} was not given up", (message,))
        for message in seen.history.poisonous & seen.acknowledged_at.keys()
        if message not in letters and not seen.may_be_lost(message)
    ]


def _is_answered(seen: Seen, turn_id: str) -> bool:
    got = {reply.text for reply in seen.replies.get(turn_id, [])}
    return any(call.answer and set(call.answer) <= got for call in seen.turns[turn_id])


def _is_poisonous(seen: Seen, turn_id: str) -> bool:
    return any(message in seen.history.poisonous for message in seen.turns[turn_id][0].message_ids)


def _name(call: HandOver) -> str:
    return f"attempt {call.attempt} of {call.turn_id}"
