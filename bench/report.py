"""The table at the end, and the same as data. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from bench.contenders import RATIOS
from bench.figures import Figures
from bench.waiting import Crowd

Row = tuple[str, str, str]
# What the figure is called, in which unit, and which field holds it.
ROWS: Sequence[Row] = (
    ("messages", "", "messages"),
    ("accepted", "/s", "accepted_a_second"),
    ("handed over, end to end", "/s", "handed_over_a_second"),
    ("call answered, p50", "ms", "answered_p50"),
    ("call answered, p99", "ms", "answered_p99"),
    ("late after due, p50", "ms", "lateness_p50"),
    ("late after due, p99", "ms", "lateness_p99"),
    ("late after last call, p99", "ms", "waited_p99"),
    ("CPU for 1,000 messages", "s", "cpu"),
    ("  of the client", "s", "cpu_client"),
    ("  of the worker", "s", "cpu_worker"),
    ("  of the store", "s", "cpu_store"),
    ("cores busy with other work", "", "cores_of_others"),
    ("store commands, idle", "/s", "idle_commands_a_second"),
    ("bursts whole and once", "", "whole_bursts"),
    ("bursts split", "", "split_bursts"),
    ("bursts without their last one", "", "lost_bursts"),
    ("messages never handed over", "", "missing"),
    ("messages handed over twice", "", "twice"),
)
# A steady rate is what we offered, so it says nothing about who is faster.
COMPARED = {
    "steady": ("lateness_p50", "lateness_p99", "cpu"),
    "flood": ("accepted_a_second", "handed_over_a_second", "lateness_p50", "lateness_p99", "cpu"),
}
LABEL = 30
COLUMN = 12


def table(load: str, found: Mapping[str, Figures]) -> str:
    """A column for each contender, a line for each figure, then the ratios between those who use the same server."""
    lines = [f"{load:<{LABEL}}" + "".join(f"{name:>{COLUMN}}" for name in found)]
    for label, unit, field in ROWS:
        cells = [number(getattr(figures, field)) for figures in found.values()]
        lines.append(f"{f'{label} {unit}'.rstrip():<{LABEL}}" + "".join(f"{cell:>{COLUMN}}" for cell in cells))
    return "\n".join([*lines, *_ratio_lines(load, found)])


def ratios(load: str, ours: Figures, theirs: Figures) -> dict[str, float]:
    """Ours divided by theirs, for the figures that compare: rates want to be above 1, lateness and CPU below."""
    return {field: _divided(getattr(ours, field), getattr(theirs, field)) for field in COMPARED[load]}


def waiting_table(store: str, crowds: Sequence[Crowd]) -> str:
    sizes = "".join(f"{crowd.size:>{COLUMN},}" for crowd in crowds)
    lines = [f"{f'waiting on {store}':<{LABEL}}{sizes}{'last/first':>{COLUMN}}"]
    for name, values in waiting_figures(crowds).items():
        cells = "".join(f"{number(value):>{COLUMN}}" for value in values)
        lines.append(f"{name:<{LABEL}}{cells}{_divided(values[-1], values[0]):>{COLUMN}.2f}")
    return "\n".join(lines)


def waiting_figures(crowds: Sequence[Crowd]) -> dict[str, list[float]]:
    figures = {"bytes a conversation": [crowd.bytes_each for crowd in crowds]}
    for step in ("append", "claim", "settle"):
        costs = [getattr(crowd, step) for crowd in crowds]
        figures[f"{step}, CPU µs"] = [cost.cpu_us for cost in costs]
        figures[f"{step}, elapsed µs"] = [cost.elapsed_us for cost in costs]
        if any(cost.written for cost in costs):
            figures[f"{step}, bytes written"] = [cost.written_bytes for cost in costs]
    return figures


def as_data(load: str, found: Mapping[str, Figures]) -> dict[str, object]:
    data: dict[str, object] = {name: asdict(figures) | {"cpu": figures.cpu} for name, figures in found.items()}
    data["ratios"] = {f"{ours}/{theirs}": ratios(load, found[ours], found[theirs]) for ours, theirs in _pairs(found)}
    return data


def number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.1f}"


def _ratio_lines(load: str, found: Mapping[str, Figures]) -> Iterable[str]:
    labels = {field: label for label, _, field in ROWS}
    for ours, theirs in _pairs(found):
        yield f"{ours} / {theirs}"
        for field, ratio in ratios(load, found[ours], found[theirs]).items():
            yield f"  {labels[field]:<{LABEL - 2}}{ratio:>{COLUMN}.2f}"


def _pairs(found: Mapping[str, Figures]) -> list[tuple[str, str]]:
    return [(ours, theirs) for ours, theirs in RATIOS if ours in found and theirs in found]


def _divided(one: float | None, other: float | None) -> float:
    return one / other if one is not None and other else float("nan")
