"""`/v1/keys`: API keys are made, listed and revoked. A key itself is shown once, in the answer that made it."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.body import Instant
from turntake.accept.caller import caller_of
from turntake.errors import Problem
from turntake.http.json import answer, body_of
from turntake.instants import rfc3339
from turntake.rules.api_keys import NAME_CHARACTERS, ApiKey, KeyScope
from turntake.rules.message_limits import Part
from turntake.service import TurnTake

TENANTS = 100  # a key for more of them is one for all


class KeyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key to make: whose it is, what it may do, and for which tenants; without `tenants` for all of them."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS)]
    scopes: Annotated[tuple[KeyScope, ...], Meta(min_length=1)]
    tenants: Annotated[tuple[Part, ...], Meta(min_length=1, max_length=TENANTS)] | None = None


class KeyView(msgspec.Struct, frozen=True, rename="camel"):
    """An API key without the key itself, which nobody keeps. It counts until `revokedAt`."""

    id: str
    name: str
    scopes: tuple[str, ...]
    tenants: tuple[str, ...] | None
    created_at: Instant
    revoked_at: Instant | None


class NewKeyView(KeyView, frozen=True, rename="camel"):
    """The key that was made, with `key`: what its holder sends. It cannot be shown again."""

    key: str


class KeyList(msgspec.Struct, frozen=True):
    """The latest first, also those that were revoked of late."""

    keys: list[KeyView]


async def list_all(turns: TurnTake, request: Request) -> Response:
    await turns.keys.refresh()
    return answer(KeyList([key_view(key) for key in turns.keys.list(caller_of(request.scope))]))


async def make(turns: TurnTake, request: Request) -> Response:
    asked = await body_of(request, KeyBody)
    try:
        key, written = await turns.keys.make(caller_of(request.scope), asked.name, asked.scopes, asked.tenants)
    except PermissionError as error:
        raise Problem(403, str(error)) from None
    except ValueError as error:
        raise Problem(400, str(error)) from None
    return answer(new_key_view(key, written), 201)


async def revoke(turns: TurnTake, request: Request) -> Response:
    try:
        revoked = await turns.keys.revoke(caller_of(request.scope), request.path_params["id"])
    except PermissionError as error:
        raise Problem(403, str(error)) from None
    if revoked is None:
        raise Problem(404, "There is no such API key; GET /v1/keys and `turntake keys list` show all with their ids.")
    return Response(status_code=204)


def key_view(key: ApiKey) -> KeyView:
    return KeyView(*_shown(key))


def new_key_view(key: ApiKey, written: str) -> NewKeyView:
    return NewKeyView(*_shown(key), key=written)


def _shown(key: ApiKey) -> tuple[str, str, tuple[str, ...], tuple[str, ...] | None, str, str | None]:
    revoked_at = None if key.revoked_at is None else rfc3339(key.revoked_at)
    return key.id, key.name, key.scopes, key.tenants, rfc3339(key.created_at), revoked_at
