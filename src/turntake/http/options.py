"""What can be set about HTTP requests to this server."""

from typing import Annotated

import msgspec
from msgspec import Meta

from turntake.accept.options import MEBIBYTE, Bytes
from turntake.clock import DAY_MS
from turntake.rules.rules import Milliseconds


class HttpOptions(msgspec.Struct, frozen=True):
    """`[http]`"""

    # A hundred messages of ten kilobytes; files come by reference.
    body_bytes: Annotated[Bytes, Meta(description="The longest request body that is accepted.")] = MEBIBYTE
    # A megabyte at the speed of a bad mobile connection.
    receive_ms: Annotated[int, Meta(ge=1, le=DAY_MS, description="How long a request body may take to arrive.")] = (
        10_000
    )
    drain_ms: Annotated[
        Milliseconds, Meta(description="How long a stopping server still serves while /readyz says 503.")
    ] = 0
