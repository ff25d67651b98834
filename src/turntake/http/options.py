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
    # What common servers and proxies allow; a cookie or a signature that needs more is somebody's mistake.
    header_bytes: Annotated[
        int, Meta(ge=1_024, le=MEBIBYTE, description="The longest headers of a request that are accepted.")
    ] = 16_384
    header_fields: Annotated[int, Meta(ge=10, le=10_000, description="The most headers that a request may have.")] = 100
    header_ms: Annotated[int, Meta(ge=1, le=DAY_MS, description="How long the headers of a request may take.")] = 10_000
    # Idle ones take some ten kilobytes each.
    connections: Annotated[
        int, Meta(ge=1, le=1_000_000, description="The most connections at a time; others are answered 503.")
    ] = 10_000
    drain_ms: Annotated[
        Milliseconds, Meta(description="How long a stopping server still serves while /readyz says 503.")
    ] = 0
