"""What an operator may set about workers: types, limits, defaults and a sentence for each."""

from typing import Annotated

import msgspec

from turntake.clock import DAY_MS
from turntake.rules.rules import Milliseconds


class WorkerOptions(msgspec.Struct, frozen=True):
    """`[worker]`: how many turns at a time, and for how long."""

    concurrency: Annotated[
        int, msgspec.Meta(ge=1, le=100_000, description="How many turns are answered at the same time.")
    ] = 100
    lease_ms: Annotated[
        int, msgspec.Meta(ge=100, le=DAY_MS, description="How long a claim lasts unless the worker extends it.")
    ] = 60_000
    shutdown_ms: Annotated[
        Milliseconds, msgspec.Meta(description="How long answers may take to finish when stopping.")
    ] = 10_000
    handler_ms: Annotated[
        int,
        msgspec.Meta(ge=1, le=DAY_MS, description="How long a Python handler may take before it is cancelled."),
    ] = 120_000
