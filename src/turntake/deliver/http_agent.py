"""The agent behind a URL: it gets the event `messages.batch.ready` and answers in the response, or later."""

from collections.abc import Mapping
from typing import Any

import msgspec

from turntake.clock import Clock
from turntake.deliver.answer_shapes import replies_in_object
from turntake.deliver.cloudevents import batch_interrupted, batch_ready
from turntake.deliver.http_call import LARGEST_BODY
from turntake.deliver.options import HttpAgentOptions
from turntake.deliver.signed_endpoint import SignedEndpoint
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.deliver.turn import Turn
from turntake.errors import Away, CallFailed, GiveUp
from turntake.platforms.replies import ApiResponse
from turntake.rules.records import Claim

PAGES = ("<!doctype html", "<html")
CANCEL_MS = 10_000  # nobody waits for it, and an agent that takes longer will notice by the refusal of its answer
SHAPES = '{"reply": "…"}, {"replies": ["…", "…"]}, plain text, or nothing'


class HttpSink(Sink):
    """POSTs each turn to one URL. Close it with `aclose`."""

    is_bounded = True

    def __init__(
        self,
        url: str,
        options: HttpAgentOptions = HttpAgentOptions(),  # noqa: B008 - a frozen value
        *,
        secrets: str = "",
        retry_ms: int = 5_000,
        clock: Clock | None = None,
    ) -> None:
        """`retry_ms` is the pause after a 429 or 503 that does not say how long to wait."""
        self._endpoint = SignedEndpoint(
            url, "The agent", timeout_ms=options.timeout_ms, secrets=secrets, retry_ms=retry_ms, clock=clock
        )
        self._pending_ms = options.complete_within_ms
        self._cancelling = None
        if options.cancel_url:
            self._cancelling = SignedEndpoint(
                options.cancel_url, "The agent", timeout_ms=CANCEL_MS, secrets=secrets, clock=clock
            )

    async def deliver(self, turn: Turn) -> Answer | Pending:
        try:
            response = await self._endpoint.post(turn.id, batch_ready(turn), {"turntake-attempt": str(turn.attempt)})
        except CallFailed as error:
            if error.is_handed_over:
                raise
            raise Away(str(error)) from None
        if response.status == 202:
            return Pending(self._pending_ms)
        if 200 <= response.status < 300:
            return Answer(replies_in(response))
        raise self._endpoint.error_in(response)

    async def cancel(self, claim: Claim) -> None:
        if self._cancelling is not None:
            event = batch_interrupted(claim)
            response = await self._cancelling.post(event.id, event)
            if not 200 <= response.status < 300:
                raise self._cancelling.error_in(response)

    async def aclose(self) -> None:
        await self._endpoint.aclose()
        if self._cancelling is not None:
            await self._cancelling.aclose()


def open_sink(url: str, options: Mapping[str, Any]) -> Sink:
    """The sink behind an http or https URL, for the entry points `turntake.sinks`."""
    return HttpSink(url, msgspec.convert(options, HttpAgentOptions), secrets=options.get("secrets", ""))


def replies_in(response: ApiResponse) -> tuple[str, ...]:
    """The replies in a 2xx answer, without blank ones. Raises GiveUp if we do not accept such an answer."""
    if response.is_cut:
        raise CallFailed(f"The agent's answer is larger than {LARGEST_BODY} bytes.")
    if not response.body.strip():
        return ()
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise GiveUp("The agent compressed its answer; answer uncompressed, as the request asks for.")
    kind, _, parameters = response.headers.get("content-type", "").lower().partition(";")
    kind = kind.strip()
    if kind == "application/json" or kind.endswith("+json") or (not kind and response.body.lstrip()[:1] == b"{"):
        replies = _in_json(response.body)
    elif not kind or kind.startswith("text/"):
        replies = (_no_page(_text(response.body, parameters).strip()),)
    else:
        raise GiveUp(f"The agent answered with {kind}; accepted are application/json and text: {SHAPES}.")
    return tuple(reply for reply in replies if reply.strip())


def _in_json(body: bytes) -> tuple[str, ...]:
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise GiveUp(f"The agent's answer is not valid JSON ({error}); accepted are {SHAPES}.") from None
    replies = replies_in_object(answer)
    if replies is None:
        raise GiveUp(f"The agent's answer is JSON of another shape; accepted are {SHAPES}.")
    return replies


def _no_page(text: str) -> str:
    """The text, which several frameworks call text/html by default. A whole page is nothing to send to a person."""
    if text[:15].lower().startswith(PAGES):
        raise GiveUp(f"The agent answered with a web page (text/html); accepted are {SHAPES}.")
    return text


def _text(body: bytes, parameters: str) -> str:
    _, _, charset = parameters.partition("charset=")
    try:
        return body.decode(charset.split(";")[0].strip(' "') or "utf-8")
    # Some of Python's encodings are not for texts, and raise what they like.
    except (LookupError, ValueError):
        raise GiveUp("The agent's answer is not text in the encoding it names; send UTF-8.") from None
