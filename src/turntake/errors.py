"""Everything turntake raises on purpose, in one tree.

    TurntakeError
    ├── ConfigurationError      a setting or an argument is wrong
    │   └── MissingExtra        an optional dependency is not installed
    ├── InvalidMessage          what was sent cannot be a message
    ├── RateLimited             somebody sent more than the rules allow; nothing was acknowledged
    ├── StoreUnavailable        the store did not confirm it; nothing was acknowledged
    ├── ClaimLost               another worker, or an interruption, took the turn over
    ├── RetryLater              raised by a handler or for a platform: again later, this is not a failure
    ├── Away                    raised by a handler or for an agent: nobody is there now, this is not a failure
    ├── GiveUp                  raised by a handler or for a platform: never again with this turn
    ├── TimedOut                a handler took longer than it may, and was cancelled
    ├── Problem                 ends an HTTP request with a status and a sentence that says what to do
    ├── Forged                  raised by a channel: the platform did not send this webhook
    ├── Unreadable              raised by a channel: the platform sent it, but nobody can read it
    ├── CallFailed              an HTTP call was not answered as it should be
    ├── SendFailed              the platform did not take a reply, and may take it at the next try
    └── FateUnknown             nobody knows whether the platform took a reply

Without an argument, an error's message is the first line of its docstring, which says what to do.
"""

import sys
from collections.abc import Mapping, Sequence

import msgspec


class TurntakeError(Exception):
    """turntake could not do what was asked; the message says what to do."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip().split("\n")[0])


class ConfigurationError(TurntakeError):
    """A setting is wrong; `turntake doctor` shows every setting and where it came from."""


class MissingExtra(ConfigurationError):
    """An optional dependency is missing; install the extra that the message names."""

    def __init__(self, extra: str) -> None:
        super().__init__(
            f"This needs the extra `{extra}`, which is not installed here. Add it to this environment with: "
            f"{sys.executable or 'python'} -m pip install 'turntake[{extra}]'"
        )


class InvalidMessage(TurntakeError, ValueError):
    """The message cannot be accepted; correct it and send it again."""


class RateLimited(TurntakeError):
    """More was sent than the rules allow per minute; nothing was acknowledged, so send it again after `after_ms`."""

    def __init__(self, of: str, rule: str, per_minute: int, after_ms: int) -> None:
        seconds = -(-after_ms // 1_000)
        super().__init__(
            f"This {of} sent more than {rule} = {per_minute} allows, so nothing of this was taken: send it again in "
            f"{seconds} s."
        )
        self.rule = rule
        self.after_ms = after_ms


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


class Away(TurntakeError):
    """The agent cannot be reached just now; the turn waits until it can, for as long as `rules.ttl_ms` allows."""


class GiveUp(TurntakeError):
    """The agent will never be able to answer this turn."""


class TimedOut(TurntakeError):
    """The handler took longer than `worker.handler_ms` and was cancelled."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing wrong with a body: where, and for a list of messages in which item."""

    detail: str
    at: str = ""
    index: int | None = None


class Problem(TurntakeError):
    """The request cannot be answered; `detail` says what its sender can do."""

    def __init__(
        self, status: int, detail: str, errors: Sequence[Fault] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.headers = headers


class Forged(TurntakeError):
    """The request is not the platform's, or nobody can tell: it gets `status`, and nothing of it is believed.

    The text says why and what to set, and repeats nothing that the request said.
    """

    def __init__(self, why: str, status: int = 401) -> None:
        super().__init__(why)
        self.status = status


class Unreadable(TurntakeError):
    """The platform sent it, but its body is not what the platform sends: 400, and the text says what is wrong."""


class CallFailed(TurntakeError):
    """The other side did not answer as it should; a later try may go better.

    `reason` ends a sentence and names no URL: "within 8000 ms", "(ConnectError)". Unless `is_handed_over`, the other
    side cannot have acted on the call.
    """

    def __init__(self, message: str | None = None, *, reason: str = "", is_handed_over: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_handed_over = is_handed_over


class SendFailed(TurntakeError):
    """The platform did not take the reply; it is sent again."""


class FateUnknown(TurntakeError):
    """The reply was handed to the platform, and nobody knows whether it took it: no answer came in time."""
