"""Flush, hold and stop words: matched as whole words, whatever the text is, and in a bounded time."""

import unicodedata
from time import process_time_ns

import hypothesis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turntake.rules.cues import AgentCues, cue_of
from turntake.rules.key import ConversationKey
from turntake.rules.message import Attachment, Message
from turntake.rules.rules import Rules
from turntake.rules.scopes import Layer, RuleBook, RuleScope
from turntake.rules.word_lists import LISTS
from turntake.rules.words import LOOKED_AT, NO_CUE, Cue, cue_in, words_in, words_of

RULED = ConversationKey.of("ann")
OURS = words_in(("that's all", "over"), ("one moment", "not over", "等一下"), ("stop", "stop it", "détente"))

patient = hypothesis.settings(deadline=None)
words = st.text(st.sampled_from("abcxyzäöéß你好"), min_size=1, max_size=6)
signs = (" ", "\t", "\n", ".", ", ", "!", "?", "-", "\u2014", "\u2026", '"', "(", "🛑", "👍🏽", "❤️", "🇩🇪")
between = st.lists(st.sampled_from(signs), min_size=1, max_size=3).map("".join)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("stop", "stop"),
        ("  STOP!!! ", "stop"),
        ("Stop it.", "stop"),
        ("stop 🛑", "stop"),
        ("\uff53\uff54\uff4f\uff50", "stop"),
        ("st\u00adop", "stop"),
        ("sto\u200bp", "stop"),
        ("De\u0301tente", "stop"),
        ("DÉTENTE", "stop"),
        ("bus stop", ""),
        ("stop the music", ""),
        ("stopp", ""),
        ("s t o p", ""),
        ("non-stop", ""),
        ("That\u2019s all, thanks!", "flush"),
        ("thats ALL", "flush"),
        ("so that's\nall", "flush"),
        ("overt", ""),
        ("moreover", ""),
        ("it is over", "flush"),
        ("it is not over", "hold"),
        ("ok \u2013 one moment, please", "hold"),
        ("one more moment", ""),
        ("one moment ... that's all", "flush"),
        ("that's all ... one moment", "hold"),
        ("好的等一下", "hold"),
        ("", ""),
        ("🛑", ""),
        ("x" * 600 + " that's all", "flush"),
        ("one moment " + "x " * 300, ""),
        ("stop " * 200, ""),
        ("moreover" + " x" * 248, ""),
        ("stop" + " " * (LOOKED_AT - 4), "stop"),
        ("that`s all", "flush"),
    ],
)
def test_what_a_text_says(text: str, kind: str) -> None:
    assert cue_in(text, OURS) == Cue(kind)  # type: ignore[arg-type]


def test_of_phrases_that_end_alike_the_longest_that_is_said_counts() -> None:
    """Also where there is a longer one, for which the text is too short."""
    ours = words_in(("is over",), ("over", "it is over"), ())
    assert [cue_in(text, ours).kind for text in ("over", "is over", "it is over")] == ["hold", "flush", "hold"]


def test_a_stop_word_with_an_attachment_is_a_caption() -> None:
    rules = Rules(stop_words=("stop",), flush_words=("done",))
    picture = Message("m1", "stop", attachments=(Attachment("image"),))
    assert cue_of(picture, rules) == NO_CUE
    assert cue_of(Message("m1", "done", attachments=(Attachment("image"),)), rules) == Cue("flush")
    assert cue_of(Message("m1", "stop"), rules) == Cue("stop")


def test_an_amendment_gives_no_cue() -> None:
    assert cue_of(Message("m2", "stop", amends="m1"), Rules(stop_words=("stop",)), is_cut=True) == NO_CUE


def test_a_cut_text_says_nothing_else_unless_that_is_switched_off() -> None:
    message = Message("m1", "that's all")
    assert cue_of(message, Rules(flush_words=("@en",)), is_cut=True) == Cue("cut")
    assert cue_of(message, Rules(flush_words=("@en",), cut_text_ms=0), is_cut=True) == Cue("flush")
    assert cue_of(message, Rules(), is_cut=False) == NO_CUE


def test_agents_may_have_words_of_their_own() -> None:
    """Which agent a conversation has is known to the store alone; each text is looked at once for each."""
    book = RuleBook({RuleScope("agent", "sales"): Layer({"stop_words": ["halt"]})})
    rules = book.of(RULED)
    found = cue_of(Message("m1", "Halt!"), rules)
    assert isinstance(found, AgentCues)
    assert (found.of("sales"), found.of("support"), found.of("")) == (Cue("stop"), NO_CUE, NO_CUE)
    assert found.of("sales") is found.of("sales")
    assert cue_of(Message("m1", "Halt!"), rules, "sales") == Cue("stop")


def test_a_book_knows_whether_anybody_has_words() -> None:
    assert not RuleBook({RuleScope("tenant", "acme"): Layer({"stop_words": []})}).has_words
    assert RuleBook({RuleScope("tenant", "acme"): Layer({"stop_words": ["stop"]})}).has_words
    assert RuleBook(live={RuleScope("agent", "sales"): Layer({"hold_words": ["@de"]})}).has_words


@pytest.mark.parametrize("language", sorted(LISTS))
def test_our_own_lists_are_found_by_their_language(language: str) -> None:
    for kind, listed in LISTS[language].items():
        ours = Rules(**{f"{kind}_words": [f"@{language.upper()}"]}).words  # type: ignore[arg-type]
        for phrase in listed:
            assert cue_in(f"{phrase.upper()} …", ours) == Cue(kind), phrase


@pytest.mark.parametrize("language", sorted(LISTS))
def test_no_list_of_ours_contradicts_another(language: str) -> None:
    said = [tuple(words_of(phrase)) for listed in LISTS[language].values() for phrase in listed]
    assert len(said) == len(set(said))


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ({"stop_words": ["!!"]}, "has no letter or digit"),
        ({"flush_words": ["@xx"]}, '"@de", "@en", "@es", "@fr", "@it", "@nl", "@pt"'),
        ({"stop_words": "stop"}, "a list of texts"),
        ({"hold_words": [""]}, "a list of texts"),
        ({"hold_words": ["x" * 101]}, "a list of texts"),
    ],
)
def test_words_that_can_never_be_said_are_refused(rules: dict[str, list[str]], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Rules(**rules)  # type: ignore[arg-type]


def test_a_list_is_as_good_as_a_tuple() -> None:
    assert Rules(stop_words=["stop"]) == Rules(stop_words=("stop",))  # type: ignore[arg-type]


@patient
@given(st.lists(words, min_size=1, max_size=4), st.lists(words, max_size=4), st.lists(words, max_size=4), st.data())
def test_a_phrase_is_found_between_any_other_words(
    phrase: list[str], before: list[str], after: list[str], data: st.DataObject
) -> None:
    """However its words are written and whatever stands between them; as a stop word only where there is no other."""
    ours = words_in((" ".join(phrase),), (), (" ".join(phrase),))
    written = [data.draw(st.sampled_from([word, word.upper(), word.title()])) for word in [*before, *phrase, *after]]
    text = "".join(part for word in written for part in (word, data.draw(between)))
    assert cue_in(text, ours).kind in ("flush", "stop")
    assert (cue_in(text, ours).kind == "stop") == (words_of(text) == words_of(" ".join(phrase)))
    assert cue_in(text, ours, is_alone=False) == Cue("flush")


@patient
@given(st.text(max_size=60))
@example("İSTANBUL")
@example("i\u0307")
def test_words_are_the_same_in_every_form_and_case(text: str) -> None:
    once = words_of(text)
    assert words_of(" ".join(once)) == once
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert words_of(unicodedata.normalize(form, text)) == once


def test_a_letter_with_two_marks_is_the_same_in_both_cases() -> None:
    """Its small letter is folded into other characters than its capital."""
    assert words_of("\u03b0") == words_of("\u03b0".upper())


HOSTILE = (
    "a" + "\u0315\u0300" * 32_768,  # marks that a normal form sorts, which takes the square of their number
    "\ufdfa" * 65_536,  # each of them is eighteen characters in its normal form
    "one " * 16_384,
    "one moment" * 6_554,
    "moment " * 9_363,
    "🛑" * 65_536,
    "\u200b" * 65_536,
    "等" * 65_536,
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_takes_no_longer_than_its_end(text: str) -> None:
    """As long as 64 KB or a hundred times that: only so many characters are looked at."""
    many = words_in((), tuple(f"word{number} moment" for number in range(500)), ("stop",))
    assert cue_in(text, many) == cue_in("a" + text[-LOOKED_AT:], many) == NO_CUE
    began_at = process_time_ns()
    cue_in(text * 100, many)
    assert process_time_ns() - began_at < 1_000_000_000, "a look takes milliseconds"


def test_many_phrases_that_end_alike_take_no_longer_than_one() -> None:
    """A list of a hundred messages would stand in everybody's way else."""
    alike = tuple(" ".join([*f"{number:03}", "a"]) for number in range(1_000))
    many = words_in(alike, alike, ())
    began_at = process_time_ns()
    for _ in range(50):
        assert cue_in("a " * LOOKED_AT, many) == NO_CUE
    assert process_time_ns() - began_at < 1_000_000_000, "a look takes milliseconds"
    assert cue_in("a 9 9 8 a", many) == Cue("hold")


def test_words_are_made_ready_once_and_go_with_their_rules() -> None:
    """Lists may be long, and whoever changes rules makes many of them."""
    ready = [Rules(stop_words=(f"stop {number}",)) for number in range(200)]
    assert all(rules.words is rules.words for rules in ready)
    assert words_in.cache_info().currsize < 100


@patient
@given(st.text(min_size=LOOKED_AT, max_size=LOOKED_AT), st.text(max_size=50))
def test_what_stands_before_the_end_of_a_text_changes_nothing(end: str, before: str) -> None:
    assert cue_in(f"{before} one moment {end}", OURS) == cue_in(f"x {end}", OURS)
