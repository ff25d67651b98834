"""turntake inside your own ASGI app: posts to itself and shows the turn. For real use: uvicorn examples.mounted:app"""

import asyncio

import httpx2
from starlette.applications import Starlette
from starlette.routing import Mount

from turntake import Rules, Turn, TurnTake

turns = TurnTake("memory://", rules=Rules(silence_ms=100, typing_inference_ms=100))


@turns.handler
async def answer(turn: Turn) -> str:
    return f"You said {len(turn.messages)} things."


app = Starlette(routes=[Mount("/chat", turns.asgi())], lifespan=turns.lifespan)  # FastAPI takes the same


async def main() -> None:
    transport = httpx2.ASGITransport(app)
    async with turns.lifespan(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for number, text in enumerate(["Hey", "me again"]):
            await client.post("/chat/v1/messages", json={"conversation": "ada", "id": str(number), "text": text})
        await turns.clock.sleep(500)
        conversation = (await client.get("/chat/v1/conversations/default:generic:default:ada")).json()
        print(conversation["turns"][0]["replies"])


if __name__ == "__main__":
    asyncio.run(main())
