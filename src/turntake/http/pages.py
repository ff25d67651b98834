"""`/`: a page for newcomers, from files, under a policy that runs nothing but its own script."""

from functools import cache
from html import escape
from importlib import resources

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from turntake.service import TurnTake

PAGES = resources.files(__package__) / "static"
MEDIA_TYPES = {"welcome.css": "text/css", "welcome.js": "text/javascript", "icon.svg": "image/svg+xml"}
EXAMPLE_URL = "http://127.0.0.1:8080/"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


async def welcome(turns: TurnTake, request: Request) -> Response:
    """The page names the address it was asked under, so that its curl line can be copied as it is."""
    key = '-H "Authorization: Bearer YOUR_KEY" ' if request.app.state.needs_key() else ""
    url = key + escape(str(request.url.replace(query="")), quote=False)
    return Response(_text("welcome.html").replace(EXAMPLE_URL, url), headers=HEADERS, media_type="text/html")


async def asset(turns: TurnTake, request: Request) -> Response:
    """A file that a page needs."""
    name = request.path_params["name"]
    if name not in MEDIA_TYPES:
        raise HTTPException(404)
    return Response(_text(name), headers=HEADERS, media_type=MEDIA_TYPES[name])


@cache
def _text(name: str) -> str:
    return (PAGES / name).read_text("utf-8")
