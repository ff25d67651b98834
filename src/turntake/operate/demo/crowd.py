"""The people of the demo: how they type, and what they say. All of it is invented."""

from random import Random
from typing import NamedTuple


class Manner(NamedTuple):
    """How somebody writes. `pause_ms` lies between two fragments of a thought, `rest_ms` between two thoughts."""

    name: str
    pause_ms: tuple[int, int]
    rest_ms: tuple[int, int]
    is_seen_typing: bool
    thoughts: tuple[tuple[str, ...], ...]


MANNERS = (
    Manner(
        "fast typist",
        (250, 900),
        (1_500, 4_000),
        False,
        (
            ("hi", "quick question", "the blue kettle", "does it whistle", "or just click off"),
            ("ok so", "i ordered two lamps", "one came", "with a dent", "the other is fine", "what now"),
            ("wait", "forgot to say", "it is a gift", "can you wrap it"),
            ("hello??", "anybody", "my parcel says delivered", "but the porch is empty"),
            ("cool", "thanks", "one more thing", "do you ship to islands"),
        ),
    ),
    Manner(
        "ponderer",
        (1_300, 2_600),
        (2_500, 5_000),
        True,
        (
            ("I have been comparing the oak table and the walnut one.", "The oak looks sturdier.", "Is it?"),
            ("My hallway is 82 cm wide,", "and the turn at the top is tight.", "Would the sofa fit?"),
            ("Something in the invoice puzzles me.", "Delivery appears twice, once as a discount."),
        ),
    ),
    Manner(
        "corrector",
        (350, 950),
        (2_000, 4_500),
        False,
        (
            ("Please move my appointment to Tuesday", "*Thursday", "the 19th, sorry"),
            ("Two tickets for the matinee", "no, three", "my aunt comes along"),
            ("My postcode is 4712", "4172!", "fingers too fat"),
        ),
    ),
    Manner(
        "one-liner",
        (0, 0),
        (2_000, 5_000),
        False,
        (
            ("Are you open on Sunday?",),
            ("Where is my order?",),
            ("Thank you, that was quick.",),
            ("Can I pay by invoice?",),
        ),
    ),
)

NAMES = (
    *("Mia", "Noor", "Tomas", "Ines", "Kofi", "Lena", "Bruno", "Aiko", "Sami", "Greta", "Ravi", "Olu"),
    *("Pia", "Juno", "Milo", "Zara", "Emil", "Nadia", "Hugo", "Leila", "Tariq", "Freya", "Otis", "Yara"),
)


class Fragment(NamedTuple):
    """One message of a thought, and the pause before it."""

    pause_ms: int
    text: str


def thought(manner: Manner, chance: Random) -> list[Fragment]:
    """The next thing that somebody wants to say, in the pieces in which they say it."""
    texts = chance.choice(manner.thoughts)
    return [Fragment(chance.randint(*manner.pause_ms) if index else 0, text) for index, text in enumerate(texts)]


def name_of(number: int) -> str:
    """Mia, Noor, … and when the names are used up, Mia 2."""
    round_, index = divmod(number, len(NAMES))
    return NAMES[index] if not round_ else f"{NAMES[index]} {round_ + 1}"
