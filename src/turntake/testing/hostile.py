"""What strangers and broken platforms send: strategies for requests, random and nearly right. Needs Hypothesis."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

from hypothesis import strategies as st
from msgspec.structs import replace

from turntake.platforms.channel import Request
from turntake.testing.recording import Recording

JsonPath = tuple[str | int, ...]

ODD_TEXTS = (
    "",
    " ",
    "\x00",
    "é",
    "✓ 👋",
    "²",  # a digit to `str.isdigit`, and none to `int`
    "٣",
    "-1",
    "1e9",
    "0x10",
    "NaN",
    "9" * 20,
    "9" * 5_000,  # more than `int` reads
    "x" * 100_000,
    "../../etc/passwd",
    "2026-02-30T25:61:61Z",
    "0001-01-01T00:00:00+23:59",
    "https://[",
)
ODD_VALUES: tuple[Any, ...] = (
    *ODD_TEXTS,
    *(None, True, False, 0, -1, 0.5, -0.0, 1e308, 2**31, 2**63, 2**70, -(2**70)),
    *(float("nan"), float("inf"), "\ud800", [], {}, [[]], [None], [{}], {"": {}}, {"id": None}, {"\udfff": "\ud800"}),
    *([[0] * 50] * 3, {"a": {"b": {"c": []}}}),
)
ODD_URLS = (
    "",
    "x",
    "https://[/webhooks",
    "https://turntake.test:x/?a=1&a=2&=&%zz",
    "//?hub.mode=subscribe&hub.challenge=1",
)
NESTED = (b"[" * 100_000, b'{"a":' * 50_000, b"[" * 500 + b"]" * 500, b'{"a":' * 900 + b"1" + b"}" * 900)

_texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
values = st.one_of(
    st.sampled_from(ODD_VALUES),
    st.integers(),
    st.floats(),
    st.text(max_size=10),
    st.lists(st.sampled_from(ODD_VALUES), max_size=3),
    st.dictionaries(st.text(max_size=5), st.sampled_from(ODD_VALUES), max_size=3),
)
documents = values.map(lambda value: json.dumps(value).encode())
bodies = st.one_of(
    st.sampled_from((*NESTED, b"", b"\xff", b"\xef\xbb\xbf{}", b"null", b"[]", b"{}")), st.binary(), documents
)


def headers(names: Sequence[str], true: Sequence[Mapping[str, str]]) -> st.SearchStrategy[dict[str, str]]:
    """Some of these headers with any values, on top of none or of true ones."""
    base = st.sampled_from([{}, *true])
    odd = st.dictionaries(st.sampled_from(names), _texts, max_size=4)
    return st.builds(lambda one, other: {**one, **other}, base, odd)


def requests(recordings: Sequence[Recording], names: Sequence[str]) -> st.SearchStrategy[Request]:
    """Any request that could reach the address: also with a true signature, of something else."""
    true = [recording.request for recording in recordings]
    known = sorted({*names, "content-type", *(name for request in true for name in request.headers)})
    urls = st.sampled_from([*ODD_URLS, *(request.url for request in true)])
    return st.builds(
        Request,
        st.sampled_from(["POST", "GET", "PUT", "HEAD"]),
        urls,
        headers(known, [request.headers for request in true]),
        bodies,
    )


def cut(request: Request) -> st.SearchStrategy[Request]:
    """The request with some bytes of its body replaced, removed or put in."""
    end = len(request.body)
    spans = st.tuples(st.integers(0, end), st.integers(0, 8), st.binary(max_size=8))
    return spans.map(lambda span: replace(request, body=_spliced(request.body, *span)))


def bent(request: Request) -> st.SearchStrategy[Request]:
    """The request with one value in its body replaced by something that nobody expects there."""
    content_type = request.headers.get("content-type", "")
    if content_type.startswith("application/x-www-form-urlencoded"):
        return _bent_form(request)
    try:
        document = json.loads(request.body)
    except ValueError:
        return cut(request)
    paths = list(_paths(document))
    changes = st.tuples(st.sampled_from(paths), values)
    return changes.map(lambda change: replace(request, body=json.dumps(_put(document, *change)).encode()))


def _bent_form(request: Request) -> st.SearchStrategy[Request]:
    pairs = dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True))
    changes = st.dictionaries(st.sampled_from(sorted(pairs) or ["Body"]), _texts, max_size=3)
    return changes.map(lambda change: replace(request, body=urlencode(pairs | change).encode()))


def _spliced(body: bytes, at: int, length: int, put_in: bytes) -> bytes:
    return body[:at] + put_in + body[at + length :]


def _paths(document: Any, path: JsonPath = ()) -> Iterator[JsonPath]:
    yield path
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, value in inner:
        yield from _paths(value, (*path, name))


def _put(document: Any, path: JsonPath, value: Any) -> Any:
    """The document with another value at this path."""
    if not path:
        return value
    changed = document.copy()
    changed[path[0]] = _put(document[path[0]], path[1:], value)
    return changed
