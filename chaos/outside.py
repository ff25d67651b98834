"""The outside world as real HTTP: an agent, and a channel that takes replies. Both write down what they see."""

import asyncio
import hashlib
import json
import random
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chaos.history import HandOver, History, Reply

THINKING_S = (0, 0, 0, 0.01, 0.01, 0.05, 0.05, 0.2)
BUSY = 0.02
SLOW = 0.06


class Outside:
    """Agent and channel on one loopback port. Each answer is new, so one given twice would show.

    Now and then the agent takes `slow_s`, longer than a lease, or says that it is busy; once `is_calm`, never.
    A poisonous message is not answered: `on_poison` is told from which port of this machine it came.
    """

    def __init__(self, history: History, chance: random.Random, slow_s: float) -> None:
        self.history = history
        self.is_calm = False
        self.on_poison: Callable[[int], None] = lambda port: None
        self._chance = chance
        self._slow_s = slow_s

    async def agent(self, request: Request) -> Response:
        event = await _event(request)
        if event is None:
            return Response(status_code=400)
        call = self._noted(event["data"])
        if self.history.poisonous & set(call.message_ids):
            assert request.client is not None
            self.on_poison(request.client.port)
            await asyncio.sleep(self._slow_s)
            return Response(status_code=500)
        is_slow = not self.is_calm and self._chance.random() < SLOW
        await asyncio.sleep(self._slow_s if is_slow else self._chance.choice(THINKING_S))
        if not self.is_calm and self._chance.random() < BUSY:
            call.ended_at = time.monotonic()
            return Response(status_code=503, headers={"retry-after": "0"})
        call.answer = tuple(f"answer {call.call}, part {part}" for part in (1, 2))
        call.ended_at = time.monotonic()
        return JSONResponse({"replies": call.answer})

    async def channel(self, request: Request) -> Response:
        event = await _event(request)
        if event is None:
            return Response(status_code=400)
        data = event["data"]
        reply = Reply(time.monotonic(), data["turnId"], data["index"], data["text"], event["id"])
        self.history.replies.append(reply)
        return Response(status_code=204)

    def server(self, port: int) -> uvicorn.Server:
        routes = [Route("/agent", self.agent, methods=["POST"]), Route("/channel", self.channel, methods=["POST"])]
        config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")
        return uvicorn.Server(config)

    def _noted(self, data: dict[str, Any]) -> HandOver:
        attempt = data.pop("attempt")
        call = HandOver(
            at=time.monotonic(),
            call=len(self.history.hand_overs) + 1,
            turn_id=data["turnId"],
            attempt=attempt,
            conversation=f"{data['tenant']}.{data['conversationId']}",
            message_ids=tuple(message["id"] for message in data["messages"]),
            seqs=tuple(message["seq"] for message in data["messages"]),
            digest=hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest(),
        )
        self.history.hand_overs.append(call)
        return call


async def _event(request: Request) -> dict[str, Any] | None:
    """The event, or None if the server died while it spoke."""
    try:
        event: dict[str, Any] = await request.json()
    except ClientDisconnect:
        return None
    return event
