"""Whether a text fills the longest message of its platform, and was probably cut there."""

import pytest

from turntake import plugins
from turntake.platforms.channel import Channel
from turntake.platforms.text_limit import NO_LIMIT, TextLimit


@pytest.mark.parametrize(
    ("limit", "text", "is_filled"),
    [
        (TextLimit(1_000), "x" * 1_000, True),
        (TextLimit(1_000), "x" * 950, True),
        (TextLimit(1_000), "x" * 949, False),
        (TextLimit(1_000), "x" * 1_001, False),
        (TextLimit(1_000, "utf-16"), "🙂" * 500, True),
        (TextLimit(1_000), "🙂" * 500, False),
        (TextLimit(1_000, "bytes"), "€" * 333, True),
        (TextLimit(1_000), "", False),
        (NO_LIMIT, "", False),
        (NO_LIMIT, "x" * 1_000, False),
    ],
)
def test_a_text_that_fills_the_limit(limit: TextLimit, text: str, is_filled: bool) -> None:
    assert limit.is_filled_by(text) == is_filled


@pytest.mark.parametrize("name", ["telegram", "whatsapp", "messenger", "instagram", "discord", "slack", "twilio"])
def test_every_chat_platform_has_a_limit(name: str) -> None:
    channel: type[Channel] = plugins.load("channels", name)
    assert 1_000 <= channel.text_limit.longest <= 4_096
