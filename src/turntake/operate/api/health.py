"""`/healthz` and `/readyz`: for whoever decides to restart the process or to send it requests."""

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.problem import Problem
from turntake.operate.api.exchange import answer
from turntake.service import TurnTake


class Health(msgspec.Struct, frozen=True):
    """All is well; anything else is a problem."""

    status: Literal["ok"] = "ok"


class Readiness:
    """Ready means: messages sent now would be taken."""

    def __init__(self, turns: TurnTake) -> None:
        self._turns = turns

    async def check(self, request: Request) -> Response:
        if not self._turns.is_running:
            raise Problem(503, "TurnTake is not running yet, or no longer.")
        try:
            await self._turns.store.next_due()
        except Exception as error:
            raise Problem(503, f"The store does not answer ({type(error).__name__}).") from error
        return answer(Health())


async def healthz(request: Request) -> Response:
    return answer(Health())
