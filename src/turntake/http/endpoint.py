"""What a row of the table in `routes.py` says about one endpoint."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from turntake.argument_checks import Role
from turntake.rules.api_keys import KeyScope
from turntake.service import TurnTake

JSON = "application/json"
EVERY_ROLE: tuple[Role, ...] = ("all", "accept", "work")
INTAKE_ROLES: tuple[Role, ...] = ("all", "accept")

Access = Literal["key", "signature", "page", "public"]
"""Who may call: holders of an API key, platforms that sign their calls, or everybody.

A "page" is for everybody too, but without API keys only for those who are served without one.
"""

Handler = Callable[[TurnTake, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """A method at a path. All methods at one path have the same `access` and `roles`.

    `handler` is a function, or a class that speaks ASGI itself, of which the app makes one instance.
    `problems` are the statuses that only this endpoint refuses with; `refusals` adds those of its kind.
    """

    method: str
    path: str
    purpose: str
    handler: Handler | type
    answer: Any = None
    status: int = 200
    body: Any = None
    query: Any = None
    problems: tuple[int, ...] = ()
    media_type: str = JSON
    access: Access = "key"
    scope: KeyScope | None = None
    """What an API key must be allowed."""
    roles: tuple[Role, ...] = EVERY_ROLE
    is_described: bool = True
    """Whether /openapi.json and the reference page show it."""

    def __post_init__(self) -> None:
        if (self.access == "key") != (self.scope is not None):
            raise ValueError(f"{self.method} {self.path}: an endpoint has a scope if it needs a key, and only then.")

    @property
    def takes_token(self) -> bool:
        """Whether the completion token of a turn is enough."""
        return self.scope == "turns:complete"

    @property
    def is_body_needed(self) -> bool:
        """Whether a request without a body is refused."""
        return self.body is not None and type(None) not in getattr(self.body, "__args__", ())

    def refusals(self) -> list[int]:
        """Every status it may refuse with, in order."""
        refused = {*self.problems}
        if self.access == "key":
            refused |= {401, 403, 429, 503}
        if self.access == "signature":
            refused |= {400, 401, 403, 404, 405, 408, 413, 429, 503}
        if self.access == "page":
            refused |= {401, 403, 429}
        if self.query is not None:
            refused |= {400}
        if self.body is not None:
            refused |= {400, 408, 413}
        return sorted(refused)
