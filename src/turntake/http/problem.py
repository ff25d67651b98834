"""Errors as `application/problem+json` (RFC 9457). `detail` says what to do."""

import asyncio
import logging
import traceback
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from turntake.accept.body import PRIVATE
from turntake.errors import Fault, InvalidMessage, Problem, RateLimited, StoreUnavailable

log = logging.getLogger("turntake")

MEDIA_TYPE = "application/problem+json"
NOT_CONFIRMED = (
    "The store did not confirm it, so nothing is acknowledged; "
    "send it again after the seconds in Retry-After, with the same ids, which repeats nothing."
)
STOPPING = "The server stops before it could answer; nothing is acknowledged. Send it again, with the same ids."
NOT_ANSWERED = "The store does not answer; the log says why. Ask again after the seconds in Retry-After."


class ProblemBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    errors: Sequence[Fault] = ()


def response_to(problem: Problem) -> Response:
    """The problem as its sender gets it."""
    phrase = HTTPStatus(problem.status).phrase
    body = ProblemBody("about:blank", phrase, problem.status, problem.detail, problem.errors)
    return Response(msgspec.json.encode(body), problem.status, {**PRIVATE, **(problem.headers or {})}, MEDIA_TYPE)


class Problems:
    """Outermost: whatever goes wrong inside leaves as a problem, and the server lives on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if scope["type"] != "http":
                raise
            await response_to(problem_of(error, scope))(scope, receive, send)
        except asyncio.CancelledError:
            # The server stops and waits for nobody any more. What was answered in part cannot be answered anew.
            if scope["type"] == "http":
                with suppress(Exception):
                    await response_to(Problem(503, STOPPING, headers={"Retry-After": "1"}))(scope, receive, send)
            raise


def not_served(request: Request, error: Exception) -> Response:
    """What Starlette answers by itself: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    details = {
        404: f"There is nothing at {request.url.path}; /openapi.json lists what there is.",
        405: f"{request.method} is not possible here; the Allow header says what is.",
    }
    detail = details.get(error.status_code, error.detail)
    return response_to(Problem(error.status_code, detail, headers=error.headers))


def problem_of(error: Exception, scope: Scope) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidMessage):
        return Problem(400, str(error))
    if isinstance(error, RateLimited):
        return Problem(429, str(error), headers={"Retry-After": str(-(-error.after_ms // 1_000))})
    if isinstance(error, StoreUnavailable):
        log.warning("The store did not confirm a request", extra=facts_of(error, scope))
        detail = NOT_ANSWERED if scope["method"] in ("GET", "HEAD") else NOT_CONFIRMED
        return Problem(503, detail, headers={"Retry-After": "1"})
    log.error("A request failed", extra=facts_of(error, scope))
    return Problem(500, "The server made a mistake and logged it; nothing was acknowledged, so try again.")


def facts_of(error: Exception, scope: Scope) -> dict[str, Any]:
    """For the log: what failed and why. Only a store's own words, since those of others may quote a person."""
    facts = {"action": "request", "path": scope["path"], "error": type(error).__name__}
    if key := scope.get("path_params", {}).get("key"):
        facts |= {"path": scope["path"].replace(key, "{key}"), "conversation": key}
    if isinstance(error, StoreUnavailable):
        return facts | {"reason": str(error)}
    return facts | {"trace": "".join(traceback.format_tb(error.__traceback__))}
