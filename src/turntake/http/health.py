"""`/healthz` and `/readyz`: for whoever decides to restart the process or to send it requests."""

import logging
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turntake.errors import Problem
from turntake.http.problem import facts_of
from turntake.http.requests import answer
from turntake.service import Role, TurnTake

log = logging.getLogger("turntake")


class Health(msgspec.Struct, frozen=True):
    """All is well; anything else is a problem."""

    status: Literal["ok"] = "ok"


class Ready(Health, frozen=True):
    """It does what its role says."""

    role: Role = "all"


class Readiness:
    """Ready means: it may be sent what its role takes, now and for a while to come."""

    def __init__(self, turns: TurnTake) -> None:
        self._turns = turns

    async def check(self, request: Request) -> Response:
        if not self._turns.is_running:
            raise Problem(503, "TurnTake is not running yet, or no longer.")
        if self._turns.is_draining:
            raise Problem(503, "This process is about to stop; send requests to another.")
        try:
            await self._turns.store.next_due()
        except Exception as error:
            log.warning("The store does not answer", extra=facts_of(error, request.scope))
            raise Problem(503, "The store does not answer; the log says why.") from error
        return answer(Ready(role=self._turns.role))


async def healthz(request: Request) -> Response:
    return answer(Health())
