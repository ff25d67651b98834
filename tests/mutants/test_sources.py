"""Which bugs are planted, and which are not, since no test should notice them."""

from textwrap import dedent

import pytest

from mutants import python_source, script_source


def in_python(source: str) -> list[str]:
    """The source with each bug in turn."""
    raw = dedent(source).encode()
    return [mutant.applied(raw).decode() for mutant in python_source.mutants_of("a.py", raw)]


def in_script(name: str, source: str) -> list[str]:
    raw = source.encode()
    return [mutant.applied(raw).decode() for mutant in script_source.mutants_of(name, raw)]


@pytest.mark.parametrize(
    ("source", "bugs"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a <= b < c", ["x = a < b < c", "x = a <= b <= c"]),
        ("x = a is not None", ["x = a is None"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a and b and c", ["x = a or b and c", "x = a and b or c"]),
        ("x = (a) == (b)", ["x = (a) != (b)"]),
        ("x = a + b", ["x = a - b"]),
        ("x = not a", ["x = a"]),
        ("x = f(1)", ["x = f(2)"]),
        ("x = f(True)", ["x = f(False)"]),
        ("x = max(a, b)", ["x = min(a, b)"]),
        ("x += y", ["x -= y"]),
        ("x.clear()", ["pass"]),
        ("é = 'ü'; x = a > b", ["é = 'ü'; x = a >= b"]),
        ("def f():\n    return a", ["def f():\n    return None"]),
        ("if a:\n    b = c", ["if False:\n    b = c", "if True:\n    b = c"]),
        ("while a:\n    break", ["while False:\n    break", "while True:\n    break", "while a:\n    continue"]),
    ],
)
def test_bugs_in_python(source: str, bugs: list[str]) -> None:
    assert in_python(source) == bugs


@pytest.mark.parametrize(
    "source",
    [
        '"""What 1 < 2 means."""',
        "assert a < b, 'never'",
        "log.warning('Something', extra={'count': 1})",
        "PAGE = 500",
        "x: Annotated[int, Meta(ge=0)]",
        "def f(a: int | None) -> int | None: ...",
        "x = 'a' + b",
        "def f():\n    return None",
        "class A(Struct, gc=False): ...",
        "import a",
    ],
)
def test_what_no_test_should_notice_is_left_alone(source: str) -> None:
    assert in_python(source) == []


@pytest.mark.parametrize(
    ("source", "bugs"),
    [
        ("if a == b then", ["if a ~= b then"]),
        ("if a <= b and c then -- a == b", ["if a < b and c then -- a == b", "if a <= b or c then -- a == b"]),
        ("    call('ZREM', KEYS[2], id)", [""]),
        ("local a = call('GET', KEYS[1])", []),
        ("-- a == b", []),
    ],
)
def test_bugs_in_lua(source: str, bugs: list[str]) -> None:
    assert in_script("a.lua", source) == bugs


@pytest.mark.parametrize(
    ("source", "bugs"),
    [
        (
            "WHERE a < 1 AND b IS NULL",
            ["WHERE a <= 1 AND b IS NULL", "WHERE a < 1 OR b IS NULL", "WHERE a < 1 AND b IS NOT NULL"],
        ),
        ("    FOR UPDATE SKIP LOCKED", ["   ", "    FOR UPDATE"]),
        ("CREATE INDEX i ON t (a) WHERE a IS NOT NULL;", []),
        ("CREATE OR REPLACE FUNCTION f() -- a < b", []),
    ],
)
def test_bugs_in_sql(source: str, bugs: list[str]) -> None:
    assert in_script("a.sql", source) == bugs


def test_a_bug_knows_where_it_is() -> None:
    (mutant,) = python_source.mutants_of("a.py", b"a = b\nc = d == e\n")
    assert str(mutant) == "a.py:2  == -> !="
