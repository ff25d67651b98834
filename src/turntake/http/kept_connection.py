"""uvicorn's protocol with fewer steps for each request of a connection that is kept.

How this works: uvicorn sets a timer after each answer, which closes an idle connection, and cancels it with the next
request. Here the timer stays: when it fires, it looks whether the connection has been idle for so long, and if not, is
set for the rest of that time. What is received and answered passes through an `Exchange`.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from turntake.http.exchange import Exchange
from turntake.http.peer_user import CONNECTION


class KeptConnection(HttpToolsProtocol):
    """Whoever overrides `data_received` says that the connection is no longer idle."""

    idle_since: float | None = None
    """The loop's time of the last answer, if no request came since."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.scope[CONNECTION] = self  # type: ignore[literal-required]  # ASGI allows keys of one's own
        super()._start_asgi_task(cycle, Exchange(app, cycle))  # type: ignore[arg-type]  # uvicorn's types are others

    def on_response_complete(self) -> None:
        """As uvicorn's, which would set a timer here and cancel it with the next request: ours stays."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self.idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_in(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Closes the connection if it was idle for so long; if it was not, looks again once it may have been."""
        self.timeout_keep_alive_task = None
        if self.idle_since is None:
            return  # a request is under way, and its answer sets the timer
        left = self.idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._look_in(left)
        else:
            super().timeout_keep_alive_handler()

    def _look_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)
