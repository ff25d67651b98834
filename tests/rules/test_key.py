"""Two conversations share a key only if they are the same conversation."""

import re
import unicodedata
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.rules.key import PART_BYTES, ConversationKey
from turntake.rules.transitions import turn_id

tricky = st.text(st.sampled_from("ab1:~/{}%| é\u0301😀3A"), min_size=1, max_size=8)
parts = tricky | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
keys = st.builds(ConversationKey.of, parts, tenant=parts, channel=parts, account=parts, topic=st.just("") | parts)


@given(keys)
def test_a_key_is_read_back_from_its_spelling(key: ConversationKey) -> None:
    """Whatever a platform calls its conversations, the spelling says which one it is."""
    assert ConversationKey.parse(str(key)) == key


@given(keys)
def test_a_spelling_is_safe_in_urls_shells_and_redis(key: ConversationKey) -> None:
    """Nothing in it can be taken for syntax, so nobody chooses a Redis slot or a path."""
    assert re.fullmatch(r"[A-Za-z0-9._@+~-]+(:[A-Za-z0-9._@+~-]+){3,4}", str(key))


def test_no_two_keys_have_one_spelling() -> None:
    """All keys of parts that hold the separator, the sign of an escape, and what stands behind that sign."""
    atoms = ("a", ":", "~", "3A")
    texts = ["".join(some) for count in (1, 2, 3) for some in product(atoms, repeat=count)]
    keys = {ConversationKey.of(one, account="a", topic=two) for one in texts for two in ["", *texts]}
    assert len({str(key) for key in keys}) == len(keys) == len(texts) * (len(texts) + 1)


@given(tricky, tricky, tricky)
def test_parts_never_run_into_each_other(a: str, b: str, c: str) -> None:
    """ "1" + "23" is not "12" + "3", with any separator a part may contain."""
    one = ConversationKey.of(b + c, account=a)
    other = ConversationKey.of(c, account=a + b)
    assert str(one) != str(other)
    assert str(ConversationKey.of(a, topic=b)) != str(ConversationKey.of(f"{a}:{b}"))


def test_empty_parts_mean_their_defaults() -> None:
    """Only the conversation has to be named."""
    assert ConversationKey.of("ann") == ConversationKey("ann", "default", "generic", "default", "")
    assert str(ConversationKey.of("ann")) == "default:generic:default:ann"
    assert str(ConversationKey.of("ann", topic="t")) == "default:generic:default:ann:t"


def test_one_name_in_two_unicode_forms_is_one_conversation() -> None:
    """A phone that writes é as two characters talks to the same person."""
    assert ConversationKey.of(unicodedata.normalize("NFD", "zoé")) == ConversationKey.of("zoé")


@pytest.mark.parametrize("name", ["conversation", "tenant", "channel", "account", "topic"])
@pytest.mark.parametrize("bad", ["a\x00b", "a\nb", "\x7f", "é\x85", "\ud800", "x" * (PART_BYTES + 1), "é" * 129])
def test_hostile_parts_are_refused_by_name(name: str, bad: str) -> None:
    """Control characters, half characters and overlong parts are refused, and the error says where."""
    named = {"conversation": "ann", name: bad}
    with pytest.raises(ValueError, match=f"`{name}`"):
        ConversationKey.of(**named)


def test_the_longest_part_is_accepted() -> None:
    """The limit counts bytes and includes itself."""
    for part in ("x" * PART_BYTES, "é" * (PART_BYTES // 2)):
        assert ConversationKey.parse(str(ConversationKey.of(part))).conversation == part


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "ann",
        "a:b:c",
        "a:b:c:d:e:f",
        "a:b:c:",
        ":b:c:d",
        "a:b:c:d:",
        "a:b:c:~61",
        "a:b:c:~e9",
        "a:b:c:~FF",
        "a:b:c:é",
        "a:b:c:d e",
        "a:b:c:~0A",
        "a:b:c:\ud800",
    ],
)
def test_other_spellings_are_refused(spelling: str) -> None:
    """A key has one spelling; what is merely similar is an error, not another conversation."""
    with pytest.raises(ValueError, match=r"."):
        ConversationKey.parse(spelling)


def test_an_empty_conversation_is_refused() -> None:
    """Nobody's messages would share one buffer."""
    with pytest.raises(ValueError, match="`conversation` is empty"):
        ConversationKey.of("")


def test_turns_of_a_conversation_are_found_in_one_place() -> None:
    """Four digits of a turn's id tell its conversation's place, and no more than that."""
    ann = {turn_id(ConversationKey.of("ann"), n, n)[:9] for n in range(1, 50)}
    assert len(ann) == 1
    assert len({turn_id(ConversationKey.of("ann"), n, n) for n in range(1, 50)}) == 49
    assert len({turn_id(ConversationKey.of(f"p{n}"), 1, 1)[:9] for n in range(200)}) > 190
