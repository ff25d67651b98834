"""Bodies: a request's bytes become values, or a Problem that says what is wrong and where; a value becomes an answer.

The types here are those that messages and activity share. They decode, check and describe themselves in /openapi.json.
"""

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta
from starlette.types import Receive, Send

from turntake.errors import Fault, Problem
from turntake.rules.key import ConversationKey
from turntake.rules.message_limits import DEPTH, ID_BYTES, METADATA_BYTES, Part

T = TypeVar("T")
S = TypeVar("S")

Id = Annotated[str, Meta(min_length=1, max_length=ID_BYTES, description=f"At most {ID_BYTES} bytes.")]
Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Metadata = Annotated[dict[str, Any], Meta(description=f"At most {METADATA_BYTES} bytes, at most {DEPTH} levels deep.")]

_encoder = msgspec.json.Encoder()
_JSON = (b"content-type", b"application/json")
PRIVATE = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every answer that may hold what people wrote: nothing keeps it, and no page of another site loads it."""
_LOCATION = re.compile(r"^(?P<detail>.*) - at `(?P<at>\$(?:\[(?P<index>\d+)\])?.*)`$", re.DOTALL)


class ConversationBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The parts that name a conversation; those left out have their default."""

    conversation: Id
    channel: Part = ""
    account: Part = ""
    tenant: Part = ""
    agent: Part = ""
    topic: Part = ""

    def key(self) -> ConversationKey:
        return ConversationKey.of(
            self.conversation, tenant=self.tenant, channel=self.channel, account=self.account, topic=self.topic
        )


async def read_body(receive: Receive) -> bytes:
    """The body, which the limits in front have already collected into one piece."""
    body: bytes = (await receive()).get("body", b"")
    return body


async def send_accepted(send: Send, value: Any) -> None:
    """Answers 202 with `value` as JSON. It holds nothing that people wrote, and nobody keeps the answer to a POST."""
    body = _encoder.encode(value)
    headers = [_JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """What the body says, or a Problem."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise misfit(error, decoder.type) from None
    except RecursionError:
        raise Problem(400, f"The JSON is nested too deeply; at most {DEPTH} levels are read.") from None
    except UnicodeDecodeError:
        raise Problem(400, "The body is not UTF-8; send JSON in UTF-8.") from None
    except msgspec.DecodeError as error:
        raise Problem(400, f"The body is not JSON: {error}. Send a JSON object in UTF-8.") from None


def misfit(error: msgspec.ValidationError, kind: Any) -> Problem:
    """Well-formed JSON, but not of the shape of `kind`, which /openapi.json describes."""
    match = _LOCATION.match(str(error))
    if match is None:
        return Problem(400, f"{error}.", [Fault(str(error), "$")])
    index = None if match["index"] is None else int(match["index"])
    detail = match["detail"] + _choices(match, kind)
    return Problem(400, f"{detail} at {match['at']}.", [Fault(detail, match["at"], index)])


def _choices(match: re.Match[str], kind: Any) -> str:
    """The values that are allowed where another one was found."""
    if not match["detail"].startswith("Invalid enum value"):
        return ""
    field = match["at"].rpartition(".")[2]
    found = next(filter(None, (_literals(each, field) for each in _structs(kind))), ())
    return f"; allowed are {', '.join(map(repr, found))}" if found else ""


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The structs that a type is or holds."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for inner in get_args(kind):
        yield from _structs(inner)


def _literals(struct: type[msgspec.Struct], field: str) -> tuple[str, ...]:
    """What the field of this name in JSON may say, if that is one of a few words."""
    for each in msgspec.structs.fields(struct):
        if each.encode_name == field:
            kinds = (each.type, *get_args(each.type))
            return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
    return ()


def checked(make: Callable[[S], T], item: S, index: int | None = None) -> T:
    """What `make` makes of the item. Its ValueError becomes a Problem that names the item by its index in a list."""
    try:
        return make(item)
    except ValueError as error:
        fault = Fault(str(error), "$" if index is None else f"$[{index}]", index)
        where = "" if index is None else f"Item {index}: "
        raise Problem(400, f"{where}{error}", [fault]) from None


def check_bytes(**texts: str) -> None:
    """Raises ValueError if one of them takes more than ID_BYTES; a schema can only count characters."""
    for name, text in texts.items():
        # A character takes 4 bytes at most, so that a short text need not be encoded to know that it fits.
        if len(text) * 4 > ID_BYTES and len(text.encode()) > ID_BYTES:
            raise ValueError(f"`{name}` is longer than {ID_BYTES} bytes; send a shorter one or its hash.")
