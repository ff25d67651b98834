"""What an examination finds. Adapters make findings, `turntake doctor` shows them."""

from typing import Literal, NamedTuple


class Check(NamedTuple):
    """One finding, in a sentence. `warn` deserves a thought, `fail` must be mended."""

    mark: Literal["ok", "warn", "fail"]
    about: str
    says: str
