"""Our uvicorn: whom it believes, what it says of itself, and how long it waits at its end."""

import asyncio

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from turntake.http.server import Server, listen, url_of


async def shown(request: Request) -> JSONResponse:
    assert request.client is not None
    return JSONResponse([request.client.host, request.url.scheme])


async def test_nobody_is_believed_who_claims_to_speak_for_another() -> None:
    """By such headers anybody could pass for this machine; the public URL is a setting."""
    steps: list[str] = []
    ready = asyncio.Event()
    app = Starlette(routes=[Route("/", shown)])
    server = Server(
        app, 500, ready.set, lambda: steps.append("stop"), on_drain=lambda: steps.append("drain"), is_guest=True
    )
    with listen("127.0.0.1", 0) as bound:
        running = asyncio.create_task(server.serve(sockets=[bound]))
        await asyncio.wait_for(ready.wait(), 20)
        headers = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https", "Forwarded": "for=203.0.113.7"}
        async with httpx2.AsyncClient() as client:
            answer = await client.get(url_of(bound), headers=headers)
        server.stop()
        await asyncio.wait_for(running, 20)
    assert answer.json() == ["127.0.0.1", "http"]
    assert "server" not in answer.headers
    assert steps == ["drain", "stop"]


async def test_requests_under_way_have_at_least_a_second() -> None:
    """uvicorn counts whole seconds, and none at all would cut every answer off."""
    app = Starlette()
    seconds = [Server(app, ms, is_guest=True).config.timeout_graceful_shutdown for ms in (0, 999, 1_000, 10_000)]
    assert seconds == [1, 1, 1, 10]
