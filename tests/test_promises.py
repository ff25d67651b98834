"""`docs/promises.md` names proofs that exist and says what stands for each trap; nothing cites what is not here."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "promises.md").read_text()
TRAPS = 73
STORES = ("redis", "postgres", "sqlite")
OURS = ("src", "tests", "chaos", "mutants", "bench", "harness", "examples", "docs")
READ_BY_PEOPLE = (".py", ".md", ".lua", ".sql", ".toml", ".html", ".js", ".css")
DOCUMENTS = {path.name for folder in (".", "docs/**") for path in ROOT.glob(f"{folder}/*.md")}

_PROOF = re.compile(r"`(test_\w+|chaos:\w+)`")
_DEFINITION = re.compile(r"^ *(?:async )?def (\w+)\(", re.MULTILINE)
_ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \|$", re.MULTILINE)
_PART = re.compile(r"^- \*([^*]+)\*: ", re.MULTILINE)
_LATER = re.compile(r"(?:comes?|ends) with: ([^;|]+)")
_DOCUMENT = re.compile(r"\b[\w-]+\.md\b")
# An item of a list by its letter and number: a trap as S and two numbers, an invariant as I, a fault as F.
_CODE = re.compile(r"\bS\d-\d+\b|(?:\b|_)s\d_\d+(?:\b|_)|\b[IF]\d{1,2}\b")


@pytest.fixture(scope="module")
def definitions() -> dict[str, list[Path]]:
    """Where each test, and each check of the chaos run, is defined."""
    found: dict[str, list[Path]] = {}
    for folder, prefix in (("tests", ""), ("src/turntake/testing", ""), ("chaos", "chaos:")):
        for path in (ROOT / folder).rglob("*.py"):
            for name in _DEFINITION.findall(path.read_text(encoding="utf-8")):
                found.setdefault(prefix + name, []).append(path)
    return found


@pytest.mark.parametrize("name", sorted(set(_PROOF.findall(PAGE))))
def test_a_proof_exists_and_is_one(definitions: dict[str, list[Path]], name: str) -> None:
    """Searching for the name leads to it. Several stores may each have a test of that name."""
    found = definitions.get(name, [])
    of_stores = {path.parent.name for path in found} & set(STORES)
    assert len(found) == max(1, len(of_stores)), found


def test_every_trap_has_a_row() -> None:
    """The last column says what proves it, why it cannot occur, or which part brings it."""
    rows = _ROW.findall(PAGE)
    assert [int(number) for number, _, _ in rows] == list(range(1, TRAPS + 1))
    for number, trap, here in rows:
        assert len(trap.split()) > 5, f"trap {number} is written out"
        assert _PROOF.search(here) or "Cannot occur: " in here or _LATER.search(here), number
    assert len({trap for _, trap, _ in rows}) == TRAPS


def test_parts_that_come_later_are_explained() -> None:
    """A row that waits for a part names one of those listed above, and none is listed in vain."""
    assert {part.strip() for part in _LATER.findall(PAGE)} == set(_PART.findall(PAGE))


def texts() -> Iterator[tuple[Path, str]]:
    """All that people read in this repository; recorded webhooks and what a bench installed are not ours."""
    paths = [*ROOT.glob("*.md"), *(path for folder in OURS for path in (ROOT / folder).rglob("*"))]
    for path in paths:
        if path.suffix in READ_BY_PEOPLE and "node_modules" not in path.parts:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def citations(text: str) -> list[str]:
    """Documents that are not in this repository, and items of lists that are not."""
    return [name for name in _DOCUMENT.findall(text) if name not in DOCUMENTS] + _CODE.findall(text)


def test_nothing_cites_a_document_that_is_not_here() -> None:
    """Whoever reads a file can look up whatever it names."""
    assert {path: found for path, text in texts() if (found := citations(text))} == {}


@pytest.mark.parametrize("code", ["S{}-7", "test_s{}_07_a_hand_over", "I{}", "(F{})", "no-such-page{}.md"])
def test_a_citation_is_seen(code: str) -> None:
    assert citations(f"as told in {code.format(0)}, see README.md")


@pytest.mark.parametrize("text", ["F811", "IF1", "UTF8", "sha256_1", "s0 and s1", "ID1", "README.md"])
def test_other_words_are_no_citation(text: str) -> None:
    assert citations(text) == []
