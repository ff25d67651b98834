"""A run in words: figures, and for each broken promise the events that show it."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from chaos.history import History, Violation
from chaos.promises import overlaps
from chaos.punctuality import latenesses
from chaos.run import LIMITS, Outcome
from chaos.seen import Seen

SHOWN = 10


def summary(outcome: Outcome) -> list[str]:
    history, seen = outcome.history, Seen(outcome.history, LIMITS)
    again = len(history.hand_overs) - len(seen.turns)
    repeated = len(history.replies) - len({reply.key for reply in history.replies})
    duplicates = sum(sending.status == "duplicate" for sending in history.sendings)
    faults = Counter(fault.kind for fault in history.faults)
    lost = sum(message not in seen.first_handed and seen.may_be_lost(message) for message in seen.acknowledged_at)
    calm, disturbed = latenesses(seen)
    logged = ", ".join(f"{count} {name}" for name, count in outcome.logs.items())
    return [
        f"{outcome.store}, seed {outcome.seed}, {outcome.seconds:.0f} s: {len(outcome.violations)} promises broken",
        f"  {len(seen.acknowledged_at)} messages acknowledged of {len(seen.sent_at)}, in {len(history.sendings)} tries",
        f"  {duplicates} tries known already; {len(seen.turns)} turns, {len(history.replies)} replies",
        f"  {sum(faults.values())} faults: {', '.join(f'{count} {kind}' for kind, count in faults.most_common())}",
        f"  {again} handed over again, {len(overlaps(seen))} of them while another went on",
        f"  {repeated} replies sent again under the same key; {_buried(history)}; {lost} lost by failovers that may",
        f"  servers: {logged}; {outcome.failed_starts} starts failed while the store was away",
        f"  lateness in calm: {_spread(calm)}; allowed {LIMITS.slack:.0f} s, from a lease after the latest fault on",
        f"  lateness while faults disturbed: {_spread(disturbed)}; allowed {LIMITS.longest:.0f} s",
    ]


def _buried(history: History) -> str:
    guilty = sum(bool(history.poisonous & set(letter.message_ids)) for letter in history.letters)
    return f"{len(history.letters)} dead letters, {guilty} of them of the {len(history.poisonous)} poisonous messages"


def broken(violations: list[Violation], history: History) -> Iterator[str]:
    """The first few violations, each with its events."""
    for violation in violations[:SHOWN]:
        yield f"  {violation}"
        for line in slice_of(history, violation):
            yield f"      {line}"
    if len(violations) > SHOWN:
        yield f"  and {len(violations) - SHOWN} more"


def slice_of(history: History, violation: Violation) -> list[str]:
    """The events about what the violation names, and the faults that touched that time."""
    about = set(violation.about)
    about |= {m for call in history.hand_overs if call.turn_id in about for m in call.message_ids}
    events = sorted(_events(history, about))
    if not events:
        return []
    first, last = events[0][0] - LIMITS.lease, events[-1][0]
    faults = [
        (fault.at, f"FAULT {fault.kind} {fault.target} for {fault.ended_at - fault.at:.3f} s")
        for fault in history.faults
        if fault.at <= last and fault.ended_at >= first
    ]
    return [f"{at - events[0][0]:+9.3f} {says}" for at, says in sorted(events + faults)]


def keep(history: History, folder: Path) -> None:
    """Writes the whole history beside the logs."""
    kinds = (history.sendings, history.hand_overs, history.replies, history.faults, history.letters)
    with (folder / "history.jsonl").open("w") as file:
        for kind in kinds:
            for event in kind:
                file.write(json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n")


def _events(history: History, about: set[str]) -> Iterable[tuple[float, str]]:
    for s in history.sendings:
        if s.message in about:
            yield s.at, f"sent {s.message}"
            yield s.ended_at, f"{s.message} was answered: {s.status}"
    for call in history.hand_overs:
        if call.turn_id in about or about & set(call.message_ids):
            name = f"call {call.call}, {call.turn_id} attempt {call.attempt}"
            yield call.at, f"{name}: {' '.join(call.message_ids)}"
            yield call.ended_at, f"{name} ended with {call.answer or 'no answer'}"
    yield from ((r.at, f"reply {r.key}: {r.text!r}") for r in history.replies if r.turn_id in about)


def _spread(values: list[float]) -> str:
    if not values:
        return "not seen"
    ordered = sorted(values)
    p50, p99 = (ordered[min(len(ordered) - 1, len(ordered) * part // 100)] for part in (50, 99))
    return f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, most {ordered[-1] * 1000:.0f} ms of {len(ordered)}"
