"""The names of what a shard holds, and how a conversation's turns sort in their index."""

from hypothesis import given
from hypothesis import strategies as st

from turntake.buffer.redis.keys import MEMBER_DIGITS, place_of


@given(st.lists(st.integers(-(10**11), 10**12 - 1), min_size=2))
def test_in_an_index_of_texts_numbers_below_zero_sort_by_size(numbers: list[int]) -> None:
    places = [place_of(number) for number in numbers]
    assert {len(place) for place in places} == {MEMBER_DIGITS}
    assert sorted(places) == [place_of(number) for number in sorted(numbers)]
