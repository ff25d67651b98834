"""Judges a storm of messages by its log alone: what people said, what the agent ran, and what left for them.

It knows nothing of turntake. Every line of the log is what one side saw: a message that was acknowledged, a run of the
agent that began or ended, a reply that left. A run is one call of the agent.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple


class Line(NamedTuple):
    """`kind` is said, rejected, began, ended or sent. A message has one id; runs and replies have all they answer."""

    kind: str
    person: str
    ids: tuple[str, ...]
    run: int = 0


def broken(
    log: list[Line], *, most_runs: int, answers: int | None = None, leaves_nothing_out: bool = False
) -> list[str]:
    """Everything that is wrong, in words; nothing if all is well.

    An answer may take `most_runs` runs of the agent, and each person gets so many `answers` if that is given. If an
    answer `leaves_nothing_out`, it is to everything that was acknowledged before its run ended.
    """
    by_person: dict[str, list[Line]] = defaultdict(list)
    for line in log:
        by_person[line.person].append(line)
    faults: list[str] = []
    for person, lines in by_person.items():
        found = [*_faults(lines, answers), *_run_faults(lines, most_runs)]
        found += _omissions(lines) if leaves_nothing_out else ()
        faults += (f"{person}: {fault}" for fault in found)
    return faults


def _faults(lines: list[Line], answers: int | None) -> Iterator[str]:
    said = [line.ids[0] for line in lines if line.kind == "said"]
    sent = [line for line in lines if line.kind == "sent"]
    answered = [id for line in sent for id in line.ids]
    if lost := [id for id in said if id not in answered]:
        yield f"never answered: {', '.join(lost)}"
    if twice := sorted({id for id in answered if answered.count(id) > 1}):
        yield f"answered twice: {', '.join(twice)}"
    if unsaid := sorted(set(answered) - set(said)):
        yield f"answered though nobody was to answer it: {', '.join(unsaid)}"
    if not lost and not twice and not unsaid and answered != said:
        yield f"out of order: {', '.join(answered)}"
    if answers is not None and len(sent) != answers:
        yield f"{len(sent)} answers instead of {answers}"


def _run_faults(lines: list[Line], most_runs: int) -> Iterator[str]:
    latest = runs = 0
    for line in lines:
        if line.kind == "began":
            latest, runs = line.run, runs + 1
        elif line.kind == "sent":
            if line.run != latest:
                yield f"run {line.run} answered after run {latest} had begun"
            if runs > most_runs:
                yield f"an answer took {runs} runs, and {most_runs} are allowed"
            runs = 0


def _omissions(lines: list[Line]) -> Iterator[str]:
    said: list[str] = []
    left_out: dict[int, list[str]] = {}
    for line in lines:
        if line.kind == "said":
            said += line.ids
        elif line.kind == "ended":
            left_out[line.run] = [id for id in said if id not in line.ids]
        elif line.kind == "sent":
            if left_out.get(line.run):
                yield f"run {line.run} left out {', '.join(left_out[line.run])}"
            said = [id for id in said if id not in line.ids]
