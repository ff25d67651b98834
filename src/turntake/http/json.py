"""Reads the JSON, the query and the path of a request, and writes JSON answers. What it cannot read is a Problem."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.body import PRIVATE, decode, misfit
from turntake.accept.repeated_names import FieldNames
from turntake.api_keys import ApiKeys
from turntake.buffer.store import Page
from turntake.errors import Problem
from turntake.rules.api_keys import Caller
from turntake.rules.key import ConversationKey

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()


def answer(value: Any, status: int = 200) -> Response:
    return Response(_encoder.encode(value), status, PRIVATE, media_type="application/json")


async def body_of(request: Request, kind: type[S]) -> S:
    """The body as a `kind`; no body at all counts as `{}`."""
    body = await request.body() or b"{}"
    payload = decode(msgspec.json.Decoder(kind), body)
    FieldNames(kind).refuse_repeated(body)
    return payload


def query_of(request: Request, kind: type[T]) -> T:
    """The query as a `kind`, with numbers read from text."""
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise misfit(error, kind) from None


def conversation_key(text: str) -> ConversationKey:
    """The key that a client copied from an answer."""
    try:
        return ConversationKey.parse(text)
    except UnicodeError:
        raise Problem(400, "This conversation key does not spell UTF-8 text.") from None
    except ValueError as error:
        raise Problem(400, f"{error} Copy it from `conversationKey`.") from None


async def page_of(keys: ApiKeys, caller: Caller, cursor: str, listing: Callable[[str], Awaitable[Page[T]]]) -> Page[T]:
    """The page that a store lists from the cursor on, unless the client made it up. The next cursor is the caller's."""
    try:
        page = await listing(keys.unseal(caller, cursor))
    except (ValueError, OverflowError):
        raise Problem(400, "This cursor is not one that a listing gave; leave it out to start again.") from None
    return Page(page.items, keys.seal(caller, page.cursor))
