"""The list of endpoints in docs/reference/http.md, made from the table. The prose around it is written by hand.

python -m turntake.http.reference docs/reference/http.md
"""

import sys
from pathlib import Path
from typing import Any, get_args

import msgspec

from turntake.http.endpoint import EVERY_ROLE, JSON, Endpoint
from turntake.http.routes import ENDPOINTS

BEGIN = "<!-- Generated from here: python -m turntake.http.reference docs/reference/http.md -->\n"
END = "<!-- to here -->\n"
FEW_FIELDS = 4  # fit into a line of the list; larger bodies are shown by name
WHO = {"signature": "the platform", "page": "everybody", "public": "everybody"}


def page(text: str) -> str:
    """The page with the list of endpoints as the table has them now."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{listing()}\n{END}{tail}"


def listing() -> str:
    """Every described endpoint, one line each."""
    lines = ["| request | body | success | what it is for | who may call |", "| --- | --- | --- | --- | --- |"]
    lines += [_line(endpoint) for endpoint in ENDPOINTS if endpoint.is_described]
    return "".join(f"{line}\n" for line in lines)


def _line(endpoint: Endpoint) -> str:
    fields = msgspec.structs.fields(endpoint.query) if endpoint.query else ()
    query = "&".join(f"{field.encode_name}=" for field in fields)
    request = f"`{endpoint.method} {endpoint.path}{query and '?'}{query}`"
    answer = _shape(endpoint.answer).replace("?", "") if endpoint.media_type == JSON else f"`{endpoint.media_type}`"
    who = _who(endpoint) + ("" if endpoint.roles == EVERY_ROLE else "; not with the role `work`")
    success = f"{endpoint.status} {answer}".rstrip()
    return f"| {request} | {_shape(endpoint.body)} | {success} | {endpoint.purpose} | {who} |"


def _who(endpoint: Endpoint) -> str:
    if endpoint.scope is None:
        return WHO[endpoint.access]
    return f"API key with `{endpoint.scope}`" + (", or the turn's token" if endpoint.takes_token else "")


def _shape(kind: Any) -> str:
    """The fields of a small struct, or the name that a larger one has in /openapi.json."""
    struct, *others = [member for member in get_args(kind) or (kind,) if member is not type(None)] or [None]
    if not isinstance(struct, type) or not issubclass(struct, msgspec.Struct):
        return ""
    fields = [f"{field.encode_name}{'' if field.required else '?'}" for field in msgspec.structs.fields(struct)]
    name = f"{{{', '.join(fields)}}}" if len(fields) <= FEW_FIELDS else struct.__name__
    return (f"`{name}`" if fields else "") + (", or a list" if others else "")


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text("utf-8")), "utf-8")
