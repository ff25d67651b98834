"""Reading requests and writing answers: what every endpoint of the API shares."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.body import decode, misfit
from turntake.buffer.store import Page
from turntake.errors import Problem
from turntake.rules.key import ConversationKey

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class Endpoint(NamedTuple):
    """What answers at a path. One that answers several methods tells them apart itself."""

    path: str
    answer: Callable[[Request], Awaitable[Response]]
    methods: tuple[str, ...] = ("GET",)


def answer(said: Any, status: int = 200) -> Response:
    return Response(_encoder.encode(said), status, media_type="application/json")


async def body(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """What the body says; no body at all says nothing, like `{}`."""
    return decode(decoder, await request.body() or b"{}")


def query(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise misfit(error) from None


def conversation_key(written: str) -> ConversationKey:
    try:
        return ConversationKey.parse(written)
    except UnicodeError:
        raise Problem(400, "This conversation key does not spell UTF-8 text.") from None
    except ValueError as error:
        raise Problem(400, f"{error} Copy it from `conversationKey`.") from None


async def page(listing: Awaitable[Page[T]]) -> Page[T]:
    try:
        return await listing
    except (ValueError, OverflowError):
        raise Problem(400, "This cursor is not one that a listing gave; leave it out to start again.") from None
