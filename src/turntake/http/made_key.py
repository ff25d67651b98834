"""The key that `turntake serve` makes if none is set: in a header, or in a browser by a link and then a cookie.

How this works: the link that is printed at the first start ends in `/?key=…`. Whoever opens it gets a cookie and is led
to the page without the key in its address, so that neither the browser's history nor a screenshot keeps it. The cookie
does not hold the key but a word made from it, since browsers send it to every other server on this machine too. It
counts only for requests of our own pages: another server on this machine is the same site to a browser.
"""

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette._utils import get_route_path
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

Headers = dict[bytes, bytes]


class MadeKey:
    """Lets a browser in. In a header it is a key like any other."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._word = hmac.digest(self._key, b"turntake cookie", hashlib.sha256).hex().encode()

    def is_in_cookie(self, scope: Scope, headers: Headers) -> bool:
        """Whether one of our own pages sends this, in a browser that followed the link."""
        cookie = _cookie(headers)
        return hmac.compare_digest(cookie, self._word) and not is_from_another_site(scope["method"], headers)

    def login(self, scope: Scope) -> Response | None:
        """The answer to the link with the right key in it; None to everything else."""
        query: bytes = scope["query_string"]
        if not query.startswith(b"key=") or scope["method"] != "GET" or get_route_path(scope) != "/":
            return None
        (sent,) = parse_qs(query.decode("latin-1")).get("key", [""])[:1]
        if not hmac.compare_digest(sent.encode(), self._key):
            return None
        response = RedirectResponse(scope.get("root_path", "") + "/", 303, {"Cache-Control": "no-store"})
        name = _cookie_name(dict(scope["headers"]))
        response.set_cookie(
            name, self._word.decode(), path=scope.get("root_path", "") or "/", httponly=True, samesite="strict"
        )
        return response


def is_from_another_site(method: str, headers: Headers) -> bool:
    """Whether a page of another origin made a browser send this. To follow a link to a page of ours is no harm."""
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != headers.get(b"host", b""):
        return True
    is_link = method == "GET" and headers.get(b"sec-fetch-mode") == b"navigate"
    is_page = is_link and headers.get(b"sec-fetch-dest") == b"document"
    return headers.get(b"sec-fetch-site", b"none") in (b"cross-site", b"same-site") and not is_page


def _cookie(headers: Headers) -> bytes:
    try:
        cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(_cookie_name(headers))
    except CookieError:
        return b""
    return cookie.value.encode() if cookie else b""


def _cookie_name(headers: Headers) -> str:
    """One for each port, since browsers keep the cookies of all ports of a host together."""
    _, _, port = headers.get(b"host", b"").decode("latin-1").rpartition(":")
    return f"turntake-{port}" if port.isdigit() else "turntake"
