"""Completion tokens and sealed cursors: known again by whoever gave them out, made up by nobody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.rules.tokens import completion_token, open_cursor, seal_cursor, turn_of_token

SECRET, OTHER = b"s" * 32, b"o" * 32
TURN = "turn_5db09f2447a42e5e0fba60814bcac562"
# What names and cursors are made of: no control characters.
words = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40)
tenant_sets = st.frozensets(words.filter(bool), min_size=1, max_size=3)


def test_a_token_is_for_its_turn() -> None:
    token = completion_token(SECRET, TURN)
    assert turn_of_token(SECRET, token.encode()) == TURN
    assert turn_of_token(OTHER, token.encode()) == ""
    assert turn_of_token(b"", completion_token(b"", TURN).encode()) == "", "without a secret nothing is ours"


@given(st.binary(max_size=100) | words.map(str.encode))
def test_no_token_is_made_up(sent: bytes) -> None:
    token = completion_token(SECRET, TURN).encode()
    assert turn_of_token(SECRET, sent) == ""
    assert turn_of_token(SECRET, b"ttc_" + sent) == ""
    assert turn_of_token(SECRET, token + sent) == ("" if sent else TURN)
    assert turn_of_token(SECRET, b"ttc_" + sent + token[4:]) == ("" if sent else TURN)


@given(words, tenant_sets)
def test_a_sealed_cursor_opens_again(cursor: str, tenants: frozenset[str]) -> None:
    assert open_cursor(SECRET, tenants, seal_cursor(SECRET, tenants, cursor)) == cursor


@given(words.filter(lambda word: len(word) > 3), tenant_sets, tenant_sets)
def test_a_sealed_cursor_is_good_for_nobody_else(cursor: str, ours: frozenset[str], theirs: frozenset[str]) -> None:
    sealed = seal_cursor(SECRET, ours, cursor)
    for secret, tenants in ((OTHER, ours), *([(SECRET, theirs)] if theirs != ours else [])):
        with pytest.raises(ValueError, match="no listing"):
            open_cursor(secret, tenants, sealed)


def test_a_sealed_cursor_opens_in_every_process() -> None:
    """Each may have its tenants in another order."""
    assert open_cursor(SECRET, ["b", "a"], seal_cursor(SECRET, ["a", "b"], "due-1")) == "due-1"


def test_nothing_of_one_kind_is_taken_for_another() -> None:
    """Whoever gets cursors has no part of a token by that."""
    _, _, mac = completion_token(SECRET, "acme\0\0due-1").rpartition(".")
    assert seal_cursor(SECRET, {"acme"}, "due-1")[:21] != mac[:21]


def test_a_sealed_cursor_shows_nothing() -> None:
    """Neither the text nor that two of them begin alike."""
    one, other = (seal_cursor(SECRET, {"acme"}, f"due-1-globex:whatsapp:default:49170{digit}") for digit in "12")
    assert "globex" not in one
    assert one[:22] != other[:22]
    assert one[22:40] != other[22:40]


@given(st.text(max_size=80))
def test_no_cursor_is_made_up(sealed: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        open_cursor(SECRET, {"acme"}, sealed)
