"""Whether turns came neither before they were due nor long after, and how late they were."""

import math
from collections import defaultdict
from itertools import pairwise

from chaos.allowed import allowance, late_until
from chaos.history import HandOver, Violation, conversation_of
from chaos.seen import Seen

CLOCKS_DIFFER = 0.01


def early(seen: Seen) -> list[Violation]:
    """Handed over before the person was silent for long enough, although nothing else made it due."""
    found: list[Violation] = []
    for calls in seen.turns.values():
        call = calls[0]
        if any(message not in seen.sent_at for message in call.message_ids) or _is_hurried(seen, call.at):
            continue
        ahead = _earliest(seen, call) - call.at
        if ahead > CLOCKS_DIFFER and not _follows_a_full_turn(seen, call):
            says = f"{call.turn_id} was handed over {ahead:.3f} s before it can have been due"
            found.append(Violation("early", call.conversation, says, (call.turn_id, *call.message_ids)))
    return found


def late(seen: Seen) -> list[Violation]:
    """Handed over long after `max_wait`, although faults had been over for longer than a lease.

    Whoever wrote while the turn before was under way waits for its end as well, and an agent may be slow.
    """
    limits = seen.limits
    found: list[Violation] = []
    for message, acknowledged_at in seen.acknowledged_at.items():
        if message not in seen.first_handed:
            continue
        call = seen.first_handed[message]
        at = call.at
        faults = (math.inf if late_until(f) >= at else late_until(f) for f in seen.history.faults if f.at <= at)
        excused = max(faults, default=-math.inf) + limits.lease
        lateness = at - max(acknowledged_at + limits.max_wait, excused, _free_at(seen, call))
        if lateness > limits.slack or at - acknowledged_at > limits.longest:
            waited = at - acknowledged_at
            says = f"{message} waited {waited:.1f} s, and {max(lateness, 0):.1f} s of them without any excuse"
            found.append(Violation("late", conversation_of(message), says, (message,)))
    return found


def latenesses(seen: Seen) -> tuple[list[float], list[float]]:
    """How long after it was due each turn was handed over, in seconds: in calm, and while faults disturbed."""
    found: defaultdict[bool, list[float]] = defaultdict(list)
    for conversation in list(seen.conversations):
        free_at = -math.inf
        for call in seen.first_calls(conversation):
            due_at = max(_due_at(seen, call), free_at)
            free_at = max((reply.at for reply in seen.replies[call.turn_id]), default=call.at)
            found[seen.is_disturbed(due_at, call.at)].append(call.at - due_at)
    return found[False], found[True]


def _free_at(seen: Seen, call: HandOver) -> float:
    """When whoever was called with the turn before had ended."""
    before = [other for other in seen.conversations[call.conversation] if other.at < call.at]
    ends = (other.ended_at for other in before if other.turn_id == before[-1].turn_id)
    return max((end for end in ends if end <= call.at), default=-math.inf)


def _follows_a_full_turn(seen: Seen, call: HandOver) -> bool:
    """What is too much for one turn is due at once, also the rest that follows the last full one."""
    before = [other for other in seen.first_calls(call.conversation) if other.at < call.at]
    return bool(before) and len(before[-1].message_ids) >= seen.limits.capacity


def _is_hurried(seen: Seen, at: float) -> bool:
    """Whether a clock was wrong lately."""
    wrong = (fault for fault in seen.history.faults if allowance(fault).hurries)
    return any(fault.at <= at <= fault.ended_at + seen.limits.slack for fault in wrong)


def _earliest(seen: Seen, call: HandOver) -> float:
    """The first moment at which the turn can have been due, going by when its messages left their sender."""
    limits, sent = seen.limits, [seen.sent_at[message] for message in call.message_ids]
    if len(sent) >= limits.max_messages:
        return max(sent)
    quiet = limits.silence
    if len(sent) > 1 and _is_surely_typing(seen, *call.message_ids[-2:]):
        quiet = max(quiet, limits.typing)
    return min(sent[-1] + quiet, sent[0] + limits.max_wait)


def _is_surely_typing(seen: Seen, before: str, after: str) -> bool:
    """Whether the second came within the time that means typing, however slowly it travelled."""
    return seen.acknowledged_at.get(after, math.inf) - seen.sent_at[before] < seen.limits.typing


def _due_at(seen: Seen, call: HandOver) -> float:
    """When it was due, going by the tries that were acknowledged."""
    limits = seen.limits
    arrived = [_arrived_at(seen, message) for message in call.message_ids]
    if len(arrived) >= limits.max_messages:
        return arrived[-1]
    is_typing = any(after - before < limits.typing for before, after in pairwise(arrived[-2:]))
    quiet = max(limits.silence, limits.typing) if is_typing else limits.silence
    return min(arrived[-1] + quiet, arrived[0] + limits.max_wait)


def _arrived_at(seen: Seen, message: str) -> float:
    tries = seen.sendings[message]
    known = [sending.at for sending in tries if sending.is_acknowledged]
    return min(known) if known else max(sending.at for sending in tries)
