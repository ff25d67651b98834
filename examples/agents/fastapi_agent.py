"""uvicorn fastapi_agent:app --port 9000"""

import json

from fastapi import FastAPI, HTTPException, Request
from signature import is_from_turntake

app = FastAPI()


@app.post("/turn")
async def answer(request: Request) -> dict[str, str]:
    body = await request.body()
    if not is_from_turntake(request.headers, body):
        raise HTTPException(401)
    turn = json.loads(body)["data"]
    return {"reply": f"You sent {turn['messageCount']} messages: {turn['text']!r}"}
