"""What a text says about the wait: a flush word ends it, a hold word lengthens it, a stop word overtakes it. Pure.

How this works: a text is taken apart into words as people mean them, without case, punctuation, emoji and the like. So
are the words and phrases that the rules list, once for each set of lists. A flush or hold word counts anywhere in a
text, as whole words next to each other; of several, the one that ends last, since that is what the person said last. A
stop word counts only if it is all that the message says: "stop" stops, and "bus stop" does not.

A text is looked at once, before the store is asked, and no more than its end: however long a text is, and whatever is
in it, the look takes a bounded time. What comes out is a cue, and a cue is all that a store sees of it.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol, Self

import msgspec

from turntake.rules.word_lists import LISTS, WordKind

CueKind = Literal["", "flush", "hold", "stop", "cut"]
LOOKED_AT = 500
"""In characters, from the end of a text. Who writes more says it last, and putting a text into its normal form may take
the square of its length."""
LONGEST_PHRASE = 100
"""In characters: a sentence."""
OURS = "@"
"""Marks the name of a language in a list: `@en` stands for the words that turntake has for English."""

_APOSTROPHES = "'\u2019\u2018\u02bc`\u00b4"
_PLAIN_WORD = re.compile(r"[a-z0-9]+")
# Scripts that put no space between words: Thai and Lao, Myanmar, Khmer, kana, and Chinese characters.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)

Phrase = tuple[str, ...]
"""Words that must stand next to each other."""


class Cue(msgspec.Struct, frozen=True, gc=False):
    """What a message says about the wait, if anything. "cut": it fills its platform's longest text, and may go on."""

    kind: CueKind = ""

    def of(self, agent: str) -> Self:
        """The same for every agent."""
        return self


class CueByAgent(Protocol):
    """The cue of a message, once the agent of its conversation is known: agents may have words of their own."""

    def of(self, agent: str) -> Cue: ...


NO_CUE = Cue()
_CUES = {kind: Cue(kind) for kind in ("flush", "hold", "stop", "cut")}
CUT = _CUES["cut"]


class Words(NamedTuple):
    """The words of some rules, ready to be looked for: all stop phrases, and the others.

    `lengths` says how many words those phrases have that end with a word, the longest first: however many they are, a
    text is compared once for each length.
    """

    stop: frozenset[Phrase]
    others: dict[Phrase, Cue]
    lengths: dict[str, tuple[int, ...]]


def cue_in(text: str, words: Words, is_alone: bool = True) -> Cue:
    """What a text says by these words; a stop word only counts if the text `is_alone` in its message."""
    said = words_of(text[-LOOKED_AT:])
    if len(text) > LOOKED_AT:
        del said[:1]  # it may be the end of a longer word
    elif is_alone and tuple(said) in words.stop:
        return _CUES["stop"]
    for end in range(len(said), 0, -1):
        for length in words.lengths.get(said[end - 1], ()):
            cue = words.others.get(tuple(said[max(0, end - length) : end]))
            if cue is not None:
                return cue
    return NO_CUE


def words_of(text: str) -> list[str]:
    """The words of a text: NFKC, without case, apostrophes left out, all other punctuation and emoji taken as spaces.

    Where a script puts no spaces between words, each character is a word.
    """
    if text.isascii():
        return _PLAIN_WORD.findall(text.replace("'", "").replace("`", "").casefold())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # The capital of Turkish i has its dot beside it once it is folded, and others write it without.
    return "".join(map(_part, folded.replace("i\u0307", "i"))).split()


@lru_cache(4_096)  # more characters than people of one place write
def _part(character: str) -> str:
    """What a character is to a word: a part of it, a word by itself, nothing, or a space."""
    kind = unicodedata.category(character)
    if _UNSPACED.match(character):
        return f" {character} " if kind[0] in "LMN" else " "
    if character in _APOSTROPHES or kind in ("Cf", "Me") or "\ufe00" <= character <= "\ufe0f":
        return ""
    return character if kind[0] in "LMN" else " "


@lru_cache(64)  # rules keep their own; this is for those that are made anew with the same lists
def words_in(flush: tuple[str, ...], hold: tuple[str, ...], stop: tuple[str, ...]) -> Words:
    """The lists of some rules, made ready. Raises ValueError for what can never be said."""
    # Of two phrases that end at the same word the longer one counts; of the same phrase, hold: that loses nothing.
    others = dict.fromkeys(_phrases("flush", flush), _CUES["flush"])
    others |= dict.fromkeys(_phrases("hold", hold), _CUES["hold"])
    lengths: dict[str, set[int]] = {}
    for phrase in others:
        lengths.setdefault(phrase[-1], set()).add(len(phrase))
    longest_first = {last: tuple(sorted(found, reverse=True)) for last, found in lengths.items()}
    return Words(frozenset(_phrases("stop", stop)), others, longest_first)


def _phrases(kind: WordKind, given: Iterable[str]) -> Iterator[Phrase]:
    for written in given:
        if written.startswith(OURS):
            yield from (tuple(words_of(ours)) for ours in _ours(kind, written))
            continue
        phrase = tuple(words_of(written))
        if not phrase:
            raise ValueError(f'{kind}_words has "{written}", which has no letter or digit: only words are looked for.')
        yield phrase


def _ours(kind: WordKind, written: str) -> Collection[str]:
    lists = LISTS.get(written.removeprefix(OURS).lower())
    if lists is None:
        there = ", ".join(f'"{OURS}{language}"' for language in sorted(LISTS))
        raise ValueError(f'{kind}_words has "{written}": there are lists of our own for {there}.')
    return lists[kind]
