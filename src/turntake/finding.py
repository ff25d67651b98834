"""What an examination finds. Stores, channels and `turntake doctor` make findings; `turntake doctor` shows them."""

from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "fail"]
"""`warn` deserves a thought, `fail` must be mended."""


class Finding(NamedTuple):
    """One thing that was looked at, such as the store or a channel, and a sentence about it."""

    level: Level
    subject: str
    text: str
