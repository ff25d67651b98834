"""The baseline servers, without a store. `python -m … PORT bare|storeless`

`bare` reads the body and says 202 behind the limits of `turntake serve`; `storeless` is the whole service, which also
reads the messages and writes receipts, and buffers nothing.
"""

import asyncio
import sys
from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.types import Receive, Scope, Send

from turntake.accept.body import read_body, send_accepted
from turntake.accept.refusals import Refusals
from turntake.api_keys import ApiKeys
from turntake.arrival import Arrival, Receipt
from turntake.clock import SystemClock
from turntake.http.access import LoopbackOnly
from turntake.http.app import App, create, wrap
from turntake.http.callers import Callers
from turntake.http.limits import BodyLimit
from turntake.http.problem import Problems
from turntake.http.server import Server, listen, new_loop, tune
from turntake.service import TurnTake


class Storeless(TurnTake):
    """Answers as if it had buffered the messages, and keeps nothing."""

    async def accept_sound(self, arrivals: Sequence[Arrival]) -> list[Receipt]:
        due_at = self.clock.now() + 1_000
        return [Receipt("buffered", arrival.key, 1, due_at, "silence") for arrival in arrivals]


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await read_body(receive)
    await send_accepted(send, {"status": "buffered"})


def app(kind: str) -> App:
    if kind == "storeless":
        return create(Storeless("memory://", role="accept"))
    bare = App()
    clock = SystemClock()
    local = Middleware(LoopbackOnly, Callers(ApiKeys()), Refusals(clock))
    limits = [Middleware(Problems), local, Middleware(BodyLimit, clock)]
    bare.busiest = wrap(answer, limits)
    return bare


async def serve(port: int, kind: str) -> None:
    await Server(app(kind), graceful_ms=1_000).serve(sockets=[listen("127.0.0.1", port)])


if __name__ == "__main__":
    tune()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(int(sys.argv[1]), sys.argv[2]))
