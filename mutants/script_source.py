"""The small bugs that can be planted in Lua and SQL, where half of what a store decides is written."""

import re
from collections.abc import Iterator

from mutants.mutant import Mutant

Change = tuple[re.Pattern[bytes], str]


def _changes(*pairs: tuple[str, str]) -> tuple[Change, ...]:
    return tuple((re.compile(pattern.encode()), after) for pattern, after in pairs)


LUA = _changes(
    (r"==", "~="),
    (r"~=", "=="),
    (r"<=", "<"),
    (r">=", ">"),
    (r"(?<= )<(?= )", "<="),
    (r"(?<= )>(?= )", ">="),
    (r"(?<= )and(?= )", "or"),
    (r"(?<= )or(?= )", "and"),
    (r"\bnot ", ""),
    (r"(?<=[\w)] )\+(?= )", "-"),
    (r"(?<=[\w)] )-(?= )", "+"),
    # A whole command, alone on its line.
    (r"^ +(?:redis\.)?p?call\(.*\)$", ""),
)
SQL = _changes(
    (r"(?<= )<(?= )", "<="),
    (r"(?<= )>(?= )", ">="),
    (r"<=", "<"),
    (r">=", ">"),
    (r"<>", "="),
    (r"\bAND\b", "OR"),
    (r"\bOR\b(?! REPLACE)", "AND"),
    (r"\bIS NULL\b", "IS NOT NULL"),
    (r"\bIS NOT NULL\b", "IS NULL"),
    (r"\bNOT EXISTS\b", "EXISTS"),
    (r"\bDESC\b", "ASC"),
    (r" FOR UPDATE( SKIP LOCKED)?", ""),
    (r" SKIP LOCKED", ""),
)


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Every bug for this file; comments, and what makes tables, stay as they are."""
    return list(_found(path, source, LUA if path.endswith(".lua") else SQL))


def _found(path: str, source: bytes, changes: tuple[Change, ...]) -> Iterator[Mutant]:
    start = 0
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        code = line.rstrip(b"\n").split(b"--")[0]
        if not re.match(rb"\s*CREATE (TABLE|(UNIQUE )?INDEX)", code):
            for pattern, after in changes:
                for place in pattern.finditer(code):
                    before = place[0].decode()
                    yield Mutant(path, start + place.start(), start + place.end(), before, after, number)
        start += len(line)
