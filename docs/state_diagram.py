"""Draws docs/states.svg from the table of states in the docstring of rules/transitions.py.

    python docs/state_diagram.py

How this works: the states stand in a row, in the table's order. A step to the next state is a straight arrow. Every
other step is a line around the boxes: below them if it leads to the first state, above them otherwise, the longer ones
farther out. Lines of one side are nested, so none crosses another.
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
TABLE = HERE.parent / "src" / "turntake" / "rules" / "transitions.py"
PICTURE = HERE / "states.svg"

BOX_WIDTH, BOX_HEIGHT, GAP, MARGIN = 214, 92, 86, 16
LANE = 38  # between two lines of one side: room for a label of 13 px
CORNER = 10

STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; text-anchor: middle }
  .name { font-size: 17px; font-weight: 600 }
  .note { fill: #59636e; font-size: 12px }
  .label { paint-order: stroke; stroke: #ffffff; stroke-width: 6px; stroke-linejoin: round }
  .page { fill: #ffffff }
  .box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.5 }
  .line { fill: none; stroke: #0969da; stroke-width: 1.5 }
  .head { fill: #0969da }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .note { fill: #9198a1 }
    .label { stroke: #0d1117 }
    .page { fill: #0d1117 }
    .box { fill: #161b22; stroke: #656c76 }
    .line { stroke: #4493f8 }
    .head { fill: #4493f8 }
  }
"""


class State(NamedTuple):
    name: str
    holds: str
    deadline: str


class Step(NamedTuple):
    start: str
    end: str
    label: str


def read_table(docstring: str) -> tuple[list[State], list[Step]]:
    """The states in order, and the steps between them; what leads from one to another twice is one step."""
    lines = docstring.splitlines()
    rule = next(number for number, line in enumerate(lines) if re.match(r"\s*-+\s+-+\s+-+", line))
    columns = [match.start() for match in re.finditer(r"-+", lines[rule])]
    cuts = list(zip(columns, [*columns[1:], None], strict=True))
    states: list[State] = []
    left_by: dict[str, str] = {}
    for line in lines[rule + 1 :]:
        if not line.strip():
            break
        name, holds, deadline, leaves = (line[start:end].strip() for start, end in cuts)
        if name:
            states.append(State(name, holds.replace("`", ""), deadline))
        left_by[states[-1].name] = f"{left_by.get(states[-1].name, '')} {leaves}".strip()
    return states, _steps(left_by)


def _steps(left_by: dict[str, str]) -> list[Step]:
    labels: dict[tuple[str, str], list[str]] = {}
    for start, text in left_by.items():
        for part in text.split(","):
            event, arrow, ends = part.partition(" -> ")
            if not arrow:
                raise ValueError(f"The step {part.strip()!r} out of {start!r} names no state: write `event -> state`.")
            for end in ends.split(" or "):
                labels.setdefault((start, end.strip()), []).append(event.strip())
    return [Step(start, end, ", ".join(events)) for (start, end), events in labels.items()]


def draw(states: list[State], steps: list[Step]) -> str:
    place = {state.name: number for number, state in enumerate(states)}
    straight = [step for step in steps if place[step.end] == place[step.start] + 1]
    around = sorted(
        (step for step in steps if step not in straight), key=lambda step: abs(place[step.end] - place[step.start])
    )
    below = [step for step in around if place[step.end] == 0]
    above = [step for step in around if place[step.end] != 0]
    top = MARGIN + LANE * len(above)
    width = 2 * MARGIN + BOX_WIDTH * len(states) + GAP * (len(states) - 1)
    height = top + BOX_HEIGHT + LANE * len(below) + MARGIN
    drawn = [
        *(_box(state, _left(place[state.name]), top) for state in states),
        *(_straight(step, place, top) for step in straight),
        *_around(above, place, top, -1),
        *_around(below, place, top + BOX_HEIGHT, 1),
    ]
    title = "The states of a conversation: " + ", ".join(state.name for state in states)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">',
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _left(place: int) -> int:
    return MARGIN + place * (BOX_WIDTH + GAP)


def _box(state: State, left: int, top: int) -> str:
    middle = left + BOX_WIDTH // 2
    deadline = "no deadline" if state.deadline == "none" else f"deadline: {state.deadline}"
    return (
        f'<rect class="box" x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8"/>'
        f'<text class="name" x="{middle}" y="{top + 34}">{state.name}</text>'
        f'<text class="note" x="{middle}" y="{top + 57}">{state.holds}</text>'
        f'<text class="note" x="{middle}" y="{top + 75}">{deadline}</text>'
    )


def _straight(step: Step, place: dict[str, int], top: int) -> str:
    start, end = _left(place[step.start]) + BOX_WIDTH, _left(place[step.end])
    y = top + BOX_HEIGHT // 2
    label = "".join(
        f'<text class="label" x="{(start + end) // 2}" y="{y - 8 - 16 * line}">{text}</text>'
        for line, text in enumerate(reversed(step.label.split(", ")))
    )
    return f'<path class="line" d="M{start} {y}H{end - 8}"/>{_head(end, y, -8, 0)}{label}'


def _around(steps: list[Step], place: dict[str, int], edge: int, side: int) -> list[str]:
    """Lines that leave and reach the boxes at `edge`; `side` is 1 below them and -1 above. Short ones come first."""
    drawn = []
    for number, step in enumerate(steps):
        lane = edge + side * LANE * (number + 1) - side * 12
        start = _port(step, [each for each in steps if each.start == step.start], step.start, place, 0.12)
        end = _port(step, [each for each in reversed(steps) if each.end == step.end], step.end, place, 0.55)
        corner = side * CORNER
        path = (
            f"M{start} {edge}V{lane - corner}Q{start} {lane} {start - CORNER} {lane}"
            f"H{end + CORNER}Q{end} {lane} {end} {lane - corner}V{edge + side * 8}"
        )
        label = f'<text class="label" x="{(start + end) // 2}" y="{lane + 4}">{step.label}</text>'
        drawn.append(f'<path class="line" d="{path}"/>{_head(end, edge, 0, side * 8)}{label}')
    return drawn


def _port(step: Step, group: list[Step], state: str, place: dict[str, int], begins: float) -> int:
    """Where on a box's edge a line starts or ends: those that leave on the left part, those that come on the right."""
    share = begins + 0.33 * group.index(step) / max(1, len(group) - 1) if len(group) > 1 else begins + 0.16
    return round(_left(place[state]) + BOX_WIDTH * share)


def _head(x: int, y: int, dx: int, dy: int) -> str:
    """An arrow head whose tip is at x, y, and which comes from dx, dy."""
    wide_x, wide_y = (0, 5) if dx else (5, 0)
    points = f"{x},{y} {x + dx + wide_x},{y + dy + wide_y} {x + dx - wide_x},{y + dy - wide_y}"
    return f'<polygon class="head" points="{points}"/>'


def picture() -> str:
    docstring = ast.get_docstring(ast.parse(TABLE.read_text("utf-8")), clean=False)
    return draw(*read_table(docstring or ""))


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
