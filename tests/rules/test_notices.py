"""What a person is told, in their language."""

from typing import Any

import pytest

from turntake.rules.message import Message
from turntake.rules.notices import notice_for

TEXTS = """
One moment.
Please write again.
@de Einen Moment.
Bitte noch einmal schreiben.
@pt Um momento.
@pt-BR
Um momentinho.
"""


@pytest.mark.parametrize(
    ("language", "text"),
    [
        (None, "One moment.\nPlease write again."),
        ("", "One moment.\nPlease write again."),
        ("fr", "One moment.\nPlease write again."),
        ("de", "Einen Moment.\nBitte noch einmal schreiben."),
        ("de-AT", "Einen Moment.\nBitte noch einmal schreiben."),
        ("DE", "Einen Moment.\nBitte noch einmal schreiben."),
        ("pt", "Um momento."),
        ("pt_BR", "Um momentinho."),
        (7, "One moment.\nPlease write again."),
    ],
)
def test_the_language_of_the_message_decides(language: Any, text: str) -> None:
    """The nearest that there is: that of the country, then the language, then what is for everybody."""
    metadata = {} if language is None else {"language": language}
    assert notice_for(TEXTS, Message("m1", "hi", metadata=metadata)) == text


def test_without_a_text_for_everybody_others_are_told_nothing() -> None:
    assert notice_for("@de Einen Moment.", Message("m1", "hi")) == ""
    assert notice_for("", Message("m1", "hi")) == ""


def test_an_address_at_the_beginning_is_no_language() -> None:
    assert notice_for("@support is busy.", Message("m1", "hi")) == "@support is busy."
