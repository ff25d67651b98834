"""What a run amounts to, from what its two sides wrote down. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bench.bursts import BURST

Sent = tuple[str, int, float, float]
Handed = tuple[str, Sequence[int], float, float | None]


@dataclass(frozen=True, slots=True)
class Figures:
    """Times in ms, rates in messages a second. What could not be measured is None."""

    messages: int
    accepted_a_second: float
    handed_over_a_second: float
    answered_p50: float
    answered_p99: float
    lateness_p50: float
    lateness_p99: float
    waited_p99: float
    missing: int
    twice: int
    whole_bursts: int
    split_bursts: int
    lost_bursts: int
    cpu_client: float | None = None
    cpu_worker: float | None = None
    cpu_store: float | None = None
    cores_of_others: float | None = None
    idle_commands_a_second: float | None = None

    @property
    def cpu(self) -> float | None:
        """CPU seconds for 1,000 messages, all processes together."""
        parts = (self.cpu_client, self.cpu_worker, self.cpu_store)
        return None if self.cpu_client is None else sum(part or 0.0 for part in parts)


def figures(sent: Sequence[Sent], handed: Sequence[Handed], silence_ms: int) -> Figures:
    """The rates count from the first message sent; the silence at the end, which we asked for, does not count.

    Lateness counts from the due time that the contender told, else from the last message of a hand-over and the
    silence; `waited` always does the latter, so it holds the time before an answer too.
    """
    sent_at = {(conversation, number): at for conversation, number, at, _ in sent}
    first_at = min(sent_at.values())
    answers = [answered_at - at for _, _, at, answered_at in sent]
    last_handed_at = max((at for _, _, at, _ in handed), default=float("inf"))
    due_by_us = [sent_at[conversation, max(numbers)] + silence_ms for conversation, numbers, _, _ in handed]
    lateness = [at - (told or due) for (_, _, at, told), due in zip(handed, due_by_us, strict=True)]
    waited = [at - due for (_, _, at, _), due in zip(handed, due_by_us, strict=True)]
    whole, split, lost = _bursts(sent, handed)
    copies = Counter((conversation, number) for conversation, numbers, _, _ in handed for number in numbers)
    return Figures(
        messages=len(sent),
        accepted_a_second=_rate(len(sent), max(answered_at for _, _, _, answered_at in sent) - first_at),
        handed_over_a_second=_rate(len(sent), last_handed_at - first_at - silence_ms),
        answered_p50=quantile(answers, 0.5),
        answered_p99=quantile(answers, 0.99),
        lateness_p50=quantile(lateness, 0.5),
        lateness_p99=quantile(lateness, 0.99),
        waited_p99=quantile(waited, 0.99),
        missing=len(sent_at.keys() - copies.keys()),
        twice=sum(count - 1 for count in copies.values()),
        whole_bursts=whole,
        split_bursts=split,
        lost_bursts=lost,
    )


def finished(handed: Sequence[Handed]) -> set[str]:
    """The conversations whose last message was handed over: there is nothing more to wait for."""
    return {conversation for conversation, numbers, _, _ in handed if BURST - 1 in numbers}


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def _bursts(sent: Sequence[Sent], handed: Sequence[Handed]) -> tuple[int, int, int]:
    """How many were handed over once and whole, in several parts, and not to their end."""
    parts: defaultdict[str, list[Sequence[int]]] = defaultdict(list)
    for conversation, numbers, _, _ in handed:
        parts[conversation].append(numbers)
    names = {conversation for conversation, _, _, _ in sent}
    whole = sum(parts[name] == [list(range(BURST))] for name in names)
    split = sum(len(parts[name]) > 1 for name in names)
    return whole, split, len(names - finished(handed))


def _rate(count: int, duration_ms: float) -> float:
    return 1000 * count / duration_ms if duration_ms > 0 else float("nan")
