"""What an operator may set about agents and replies: types, limits, defaults and a sentence for each.

It imports no HTTP client, so that reading the options loads none.
"""

from typing import Annotated, Literal

import msgspec

from turntake.clock import DAY_MS

Wait = Annotated[int, msgspec.Meta(ge=1, le=DAY_MS)]
Quote = Literal["never", "groups", "always"]


Yields = Literal["replies", "joined"]
"""What the pieces are that a generator yields: each a reply, or all together one."""


class HandlerOptions(msgspec.Struct, frozen=True):
    """`[handler]`: an agent that is a Python function."""

    yields: Annotated[
        Yields,
        msgspec.Meta(
            description="What an agent that is a generator yields: replies, each sent at once; or pieces of one reply, "
            "such as a model's tokens, to be joined."
        ),
    ] = "replies"


class HttpAgentOptions(msgspec.Struct, frozen=True):
    """`[http_agent]`: how long an agent behind a URL may take."""

    timeout_ms: Annotated[Wait, msgspec.Meta(description="How long an HTTP agent may take to respond.")] = 120_000
    complete_within_ms: Annotated[
        Wait, msgspec.Meta(description="How long an agent that said 202 has to complete.")
    ] = 600_000
    cancel_url: Annotated[
        str,
        msgspec.Meta(
            description="Where to POST that the person interrupted a turn, for an agent that does not notice a closed "
            "request or that said 202."
        ),
    ] = ""


class ReplyOptions(msgspec.Struct, frozen=True):
    """`[replies]`: how answers leave through a platform's API."""

    on_unknown: Annotated[
        Literal["resend", "skip"],
        msgspec.Meta(
            description="What to do with a reply whose sending timed out: send it again, or count it as sent."
        ),
    ] = "resend"
    timeout_ms: Annotated[Wait, msgspec.Meta(description="How long a platform's API may take.")] = 8_000
    quote: Annotated[
        Quote, msgspec.Meta(description="When an answer quotes the message it answers, where the platform can.")
    ] = "groups"
    private_hosts: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="Hosts in private networks that may be called though no other setting names them."),
    ] = ()
    typing: Annotated[bool, msgspec.Meta(description="Show a typing indicator while the agent works.")] = True
