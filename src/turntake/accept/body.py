"""Bodies: a request's bytes become values, or a Problem that says what is wrong and where; a value becomes an answer.

The types here are those that messages and activity share. They decode, check and describe themselves in /openapi.json.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
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

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`$", re.DOTALL)


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
        detail = f"{error}{_near_name(str(error), kind)}"
        return Problem(400, _sentence(detail), [Fault(detail, "$")])
    index = None if match["index"] is None else int(match["index"])
    detail = match["detail"] + (_choices(match, kind) or _near_name(match["detail"], kind))
    return Problem(400, f"{detail} at {match['at']}.", [Fault(detail, match["at"], index)])


def _sentence(detail: str) -> str:
    return detail if detail.endswith("?") else f"{detail}."


def _choices(match: re.Match[str], kind: Any) -> str:
    """The values that are allowed where another one was found."""
    if not match["detail"].startswith("Invalid enum value"):
        return ""
    field = match["at"].rpartition(".")[2].partition("[")[0]
    found = next(filter(None, (_literals(each.type) for each in _fields(kind) if each.encode_name == field)), ())
    return f"; allowed are {', '.join(map(repr, found))}" if found else ""


def _near_name(detail: str, kind: Any) -> str:
    """The field that somebody may have meant who named one that there is not."""
    unknown = _UNKNOWN.match(detail)
    near = get_close_matches(unknown["name"], [each.encode_name for each in _fields(kind)], n=1) if unknown else []
    return f"; did you mean `{near[0]}`?" if near else ""


def _fields(kind: Any) -> Iterator[msgspec.structs.FieldInfo]:
    """The fields of the structs that a type is or holds."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from msgspec.structs.fields(kind)
    for inner in get_args(kind):
        yield from _fields(inner)


def _literals(kind: Any) -> tuple[str, ...]:
    """The words that a value of this type may be, if it is one of a few, or a list of them."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return next(filter(None, map(_literals, get_args(kind))), ())


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
