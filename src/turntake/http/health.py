"""`/healthz` and `/readyz`: for whoever decides to restart the process or to send it requests."""

import logging
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turntake.argument_checks import Role
from turntake.errors import Problem
from turntake.http.json import answer
from turntake.http.problem import facts_of
from turntake.service import TurnTake

log = logging.getLogger("turntake")


class Health(msgspec.Struct, frozen=True):
    """All is well; anything else is a problem."""

    status: Literal["ok"] = "ok"


class Ready(Health, frozen=True, rename="camel"):
    """It does what its role says. `slots_full_ms` is there if every slot for a turn has been taken for that long."""

    role: Role = "all"
    slots_full_ms: int | msgspec.UnsetType = msgspec.UNSET


async def healthz(turns: TurnTake, request: Request) -> Response:
    return answer(Health())


async def readyz(turns: TurnTake, request: Request) -> Response:
    """Ready means: it may be sent what its role takes, now and for a while to come."""
    if not turns.is_running:
        raise Problem(503, "TurnTake is not running yet, or no longer.")
    if turns.is_draining:
        raise Problem(503, "This process is about to stop; send requests to another.")
    try:
        await turns.store.check()
    except Exception as error:
        log.warning("The store does not answer", extra=facts_of(error, request.scope))
        raise Problem(503, "The store does not answer; the log says why.") from error
    return answer(Ready(role=turns.role, slots_full_ms=turns.slots_full_ms or msgspec.UNSET))
