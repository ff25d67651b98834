"""Replies in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.deliver.split import split
from turntake.platforms.replies import Unit
from turntake.platforms.text_limit import size

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAG = "\U0001f1e9\U0001f1ea"
WHOLE = (FAMILY, FLAG, "e\u0301", "\U0001f44d\U0001f3fd", "x")


def test_what_fits_is_one_piece_as_it_is() -> None:
    assert split(" as it is \n", 20) == (" as it is \n",)


def test_a_cut_is_made_at_the_best_pause_there_is() -> None:
    assert split("First one.\n\nSecond here\nthird. Fourth", 22) == ("First one.", "Second here", "third. Fourth")
    assert split("One line here\nand another line", 20) == ("One line here", "and another line")
    assert split("Es ist so. Dann war es", 14) == ("Es ist so.", "Dann war es")
    assert split("no sentence ends in here", 14) == ("no sentence", "ends in here")


def test_a_word_longer_than_a_piece_is_cut_between_characters() -> None:
    assert split("x" * 25, 10) == ("x" * 10, "x" * 10, "x" * 5)


@pytest.mark.parametrize("whole", [FAMILY, FLAG, "e\u0301", "\U0001f44d\U0001f3fd", "❤\ufe0f"])
def test_what_people_see_as_one_character_stays_whole(whole: str) -> None:
    for longest in range(len(whole), 4 * len(whole)):
        pieces = split(whole * 10, longest)
        assert "".join(pieces) == whole * 10
        assert all(len(piece) % len(whole) == 0 for piece in pieces)


def test_lengths_are_counted_as_the_platform_counts() -> None:
    assert [size("a\u00e9\U0001f600", unit) for unit in ("characters", "utf-16", "bytes")] == [3, 4, 7]
    assert split("\U0001f600" * 6, 4, "utf-16") == ("\U0001f600" * 2,) * 3
    assert split("\u00e9" * 6, 5, "bytes") == ("\u00e9" * 2,) * 3


@given(st.text(max_size=300), st.integers(8, 60), st.sampled_from(["characters", "utf-16", "bytes"]))
def test_pieces_fit_say_everything_and_keep_the_order(text: str, longest: int, unit: Unit) -> None:
    pieces = split(text, longest, unit)
    assert all(size(piece, unit) <= longest for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(pieces) or pieces == (text,)


@given(
    st.lists(st.sampled_from([FAMILY, FLAG, "e\u0301", "\U0001f44d\U0001f3fd", "x"]), max_size=60), st.integers(5, 12)
)
def test_every_piece_ends_between_characters(characters: list[str], longest: int) -> None:
    places, length = {0}, 0
    for character in characters:
        length += len(character)
        places.add(length)
    cut = 0
    for piece in split("".join(characters), longest):
        cut += len(piece)
        assert cut in places


def test_a_long_text_is_quick() -> None:
    assert len(split("word and more. " * 40_000, 4_096)) > 100
