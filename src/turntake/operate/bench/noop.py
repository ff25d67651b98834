"""The baseline server: our guards, and an answer without a store. `python -m … PORT`"""

import asyncio
import sys

from starlette.middleware import Middleware
from starlette.types import Receive, Scope, Send

from turntake.accept.guard import Guard
from turntake.accept.messages import accepted, body_of
from turntake.accept.problem import Problems
from turntake.clock import SystemClock
from turntake.operate.app import Service, behind
from turntake.operate.door import LocalOnly
from turntake.operate.server import Server, listen, new_loop, tune


class Noop:
    """Reads the body and says 202."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await body_of(receive)
        await accepted(send, {"status": "buffered"})


def app() -> Service:
    """What `turntake serve` has in front of its busiest endpoint, and nothing behind it."""
    walls = [Middleware(Problems), Middleware(LocalOnly), Middleware(Guard, SystemClock())]
    service = Service()
    service.busiest = behind(walls, Noop())
    return service


async def serve(port: int) -> None:
    await Server(app(), graceful_s=1).serve(sockets=[listen("127.0.0.1", port)])


if __name__ == "__main__":
    tune()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
