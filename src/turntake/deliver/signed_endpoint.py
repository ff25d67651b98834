"""One URL of an operator that takes our events: signed, as CloudEvents, with one reading of what it answers."""

from collections.abc import Container, Mapping

import msgspec

from turntake.clock import Clock, SystemClock
from turntake.deliver.cloudevents import CONTENT_TYPE
from turntake.deliver.http_call import HttpCaller, checked_url
from turntake.errors import Away, CallFailed, GiveUp, RetryLater
from turntake.platforms.replies import ApiCall, ApiResponse
from turntake.retry_after import excerpt, retry_after_ms
from turntake.standard_webhooks import Signer

# What a proxy answers for somebody who is not there, and a server that is about to stop or only just starts.
NOBODY_THERE = (502, 503, 504)
# A server that is up accepts in milliseconds, one behind a slow network in seconds.
CONNECT_MS = 10_000


class SignedEndpoint:
    """An HTTP agent or a callback. `whose` begins the messages of its errors: "The agent"."""

    def __init__(
        self,
        url: str,
        whose: str,
        *,
        timeout_ms: int,
        secrets: str = "",
        retry_ms: int = 5_000,
        clock: Clock | None = None,
    ) -> None:
        """`retry_ms` is the pause where the other side asks for one and does not say how long."""
        self._url = checked_url(url)
        self._signer = Signer(secrets)
        self._retry_ms = retry_ms
        self._clock = clock or SystemClock()
        headers = {"content-type": CONTENT_TYPE, "accept": "application/json, text/plain"}
        self._caller = HttpCaller(whose, timeout_ms, min(CONNECT_MS, timeout_ms), headers=headers)

    async def post(self, id: str, event: msgspec.Struct, headers: Mapping[str, str] | None = None) -> ApiResponse:
        """Sends the event and reads the answer, whatever its status. Cancelling closes the connection."""
        body = msgspec.json.encode(event)
        signed = self._signer.headers(id, body, self._clock.wall())
        return await self._caller.call(ApiCall(self._url, body, {**signed, **(headers or {})}))

    def error_in(self, response: ApiResponse, passing: Container[int] = ()) -> Exception:
        """What a status other than 2xx means. Those in `passing` are failures, although a 4xx is usually final."""
        whose, status = self._caller.whose, response.status
        # The body may quote a person, so it goes into the error, which is stored, and never into a log.
        words = excerpt(response.body)
        text = f"{whose} answered {status}" + (f": {words}" if words else ".")
        asked = response.headers.get("retry-after")
        if status == 429 or (status == 503 and asked is not None):
            return RetryLater(retry_after_ms(asked, self._retry_ms, self._clock.wall()) / 1000, text)
        if status in NOBODY_THERE:
            return Away(text)
        if 300 <= status < 400:
            return GiveUp(f"{whose} answered {status}; redirects are refused, configure the final URL.")
        if 400 <= status < 500 and status not in passing:
            return GiveUp(text)
        return CallFailed(text)

    async def aclose(self) -> None:
        await self._caller.aclose()
