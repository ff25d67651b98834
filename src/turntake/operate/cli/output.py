"""What a person sees: lines, tables and a little colour where the terminal has it."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from turntake.operate.logs import is_coloured

COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def say(line: str = "") -> None:
    print(line)


def say_json(value: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(value, enc_hook=str)).decode())


def paint(colour: str, text: str) -> str:
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if is_coloured(sys.stdout) else text


def clean(text: object) -> str:
    """Text from elsewhere on one line, unable to command the terminal."""
    return "".join(character if character.isprintable() else " " for character in str(text)).strip()


def clean_indented(line: str) -> str:
    """A line from elsewhere as `clean` makes it, with the blanks at its beginning."""
    return " " * (len(line) - len(line.lstrip(" "))) + clean(line)


def short(text: object, width: int) -> str:
    line = clean(text)
    return line if len(line) <= width else line[: width - 1] + "…"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Aligned columns, the header dimmed. Cells are cleaned; colour belongs around a whole line."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(len(line[index]) for line in [list(header), *cells]) for index in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    title = "  ".join(name.ljust(width) for name, width in zip(header, widths, strict=True))
    return [paint("dim", title.rstrip()), *(line.rstrip() for line in lines)]


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(milliseconds: float) -> str:
    """`840 ms`, `4.2 s`, `12 min`, `3 h`: two figures are enough to picture it."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    for unit, size in (("s", 1_000), ("min", 60_000), ("h", 3_600_000)):
        amount = milliseconds / size
        if amount < 60 or unit == "h":
            return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:.0f} {unit}"
    raise AssertionError
