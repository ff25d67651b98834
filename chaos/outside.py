"""The outside world as real HTTP: people who send and send again, an agent, and a channel that takes replies."""

import asyncio
import hashlib
import json
import random
import time
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chaos.history import HandOver, History, Reply


class Outside:
    """Agent and channel on one loopback port. Each answer is new, so an answer given twice would show."""

    def __init__(self, history: History, chance: random.Random) -> None:
        self.history = history
        self._chance = chance
        self.is_calm = False

    async def agent(self, request: Request) -> Response:
        data = await _data(request)
        if data is None:
            return Response(status_code=400)
        attempt = data.pop("attempt")
        digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
        ids = tuple(message["id"] for message in data["messages"])
        call = HandOver(time.monotonic(), data["turnId"], attempt, data["conversationId"], ids, digest)
        self.history.hand_overs.append(call)
        await asyncio.sleep(self._chance.choice((0, 0, 0.01, 0.05, 0.2)))
        if not self.is_calm and self._chance.random() < 0.02:
            return Response(status_code=503, headers={"retry-after": "0"})
        return JSONResponse({"replies": [f"{self._chance.random()}", f"{self._chance.random()}"]})

    async def channel(self, request: Request) -> Response:
        data = await _data(request)
        if data is None:
            return Response(status_code=400)
        self.history.replies.append(Reply(time.monotonic(), data["turnId"], data["index"], data["text"]))
        return Response(status_code=204)

    def server(self, port: int) -> uvicorn.Server:
        routes = [Route("/agent", self.agent, methods=["POST"]), Route("/channel", self.channel, methods=["POST"])]
        config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")
        return uvicorn.Server(config)


async def _data(request: Request) -> dict[str, Any] | None:
    """What the event says, or None if the server died while it spoke."""
    try:
        data: dict[str, Any] = (await request.json())["data"]
    except ClientDisconnect:
        return None
    return data


async def person(name: str, url: str, history: History, chance: random.Random, stop: asyncio.Event) -> None:
    """Sends bursts in order. What is not acknowledged is sent again, as platforms do; now and then, what is, too."""
    number = 0
    async with httpx2.AsyncClient(timeout=5) as client:
        while not stop.is_set():
            for _ in range(chance.randint(1, 5)):
                number += 1
                await _insist(client, url, name, f"{name}/{number}", history)
                if chance.random() < 0.1:
                    await _insist(client, url, name, f"{name}/{number}", history)
                await asyncio.sleep(chance.uniform(0, 0.08))
            await asyncio.sleep(chance.uniform(0.05, 0.6))


async def _insist(client: httpx2.AsyncClient, url: str, conversation: str, message: str, history: History) -> None:
    history.sent.add(message)
    body: dict[str, Any] = {"conversation": conversation, "id": message, "text": f"text of {message}"}
    while True:
        try:
            response = await client.post(f"{url}/v1/messages", json=body)
        except httpx2.HTTPError:
            await asyncio.sleep(0.02)
            continue
        if response.status_code == 202:
            history.acknowledged.setdefault(message, time.monotonic())
            return
        if response.status_code < 500:
            raise AssertionError(f"{message} was refused: {response.status_code} {response.text}")
        await asyncio.sleep(0.02)
