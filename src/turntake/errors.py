"""Everything turntake raises on purpose.

    TurntakeError
    ├── ConfigurationError      a setting or an argument is wrong
    │   └── MissingExtra        an optional dependency is not installed
    ├── InvalidMessage          what was sent cannot be a message
    ├── StoreUnavailable        the store did not confirm it; nothing was acknowledged
    ├── ClaimLost               another worker, or an interruption, took the turn over
    ├── RetryLater              raised by a handler: call me again later, this is no failure
    └── GiveUp                  raised by a handler: never call me again with this turn

Without an argument, an error's message is its docstring's first line, which says what to do.
"""


class TurntakeError(Exception):
    """turntake could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip().split("\n")[0])


class ConfigurationError(TurntakeError):
    """A setting is wrong; `turntake doctor` shows every setting and where it came from."""


class MissingExtra(ConfigurationError):
    """An optional dependency is missing."""

    def __init__(self, extra: str) -> None:
        super().__init__(f"This needs an extra that is not installed: pip install 'turntake[{extra}]'")


class InvalidMessage(TurntakeError):
    """The message cannot be accepted; correct it and send it again."""


class StoreUnavailable(TurntakeError):
    """The store did not confirm it; nothing was acknowledged, so send it again later, which repeats nothing.

    It may have been stored all the same: an answer can be lost on its way.
    """


class ClaimLost(TurntakeError):
    """This turn is no longer yours: it was taken over or interrupted, so stop working on it."""


class RetryLater(TurntakeError):
    """The agent asks to be called again later."""

    def __init__(self, after: float, message: str | None = None) -> None:
        """`after` is in seconds."""
        super().__init__(message)
        self.after_ms = int(after * 1000)


class GiveUp(TurntakeError):
    """The agent will never be able to answer this turn."""
