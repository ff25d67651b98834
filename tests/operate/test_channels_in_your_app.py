"""The app in docs/howto/channels-in-your-app.md takes a webhook and answers in the chat."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.platforms.telegram import TOKEN, TelegramApi
from turntake.platforms.channel import Request
from turntake.platforms.telegram.webhooks import Telegram

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "channels-in-your-app.md"
NOW = 1_800_000_000_000


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page's code needs and defines; it keeps its store in the folder it runs in."""
    monkeypatch.setenv("SECRET_TOKEN", "sesame")
    monkeypatch.setenv("BOT_TOKEN", TOKEN)
    return {}


async def test_a_webhook_is_answered_in_the_chat(names: dict[str, Any]) -> None:
    with TelegramApi() as telegram:
        run(telegram.url, names)
        async with names["lifespan"](names["app"]):
            assert (await posted(names["app"], webhook("sesame"))).status_code == 200
            sent = await asyncio.to_thread(telegram.wait_for, 1)
    assert sent == [("4711", "You said 1 things.")]


async def test_a_forged_one_is_refused(names: dict[str, Any]) -> None:
    with TelegramApi() as telegram:
        run(telegram.url, names)
        async with names["lifespan"](names["app"]):
            assert (await posted(names["app"], webhook("guessed"))).status_code == 401


def run(api_base: str, names: dict[str, Any]) -> None:
    """The page's code, with the platform's API at another address."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    assert code[1].count("Telegram({") == 1
    exec(code[1].replace("Telegram({", f'Telegram({{"api_base": "{api_base}", '), names)


def webhook(secret: str) -> Request:
    url = "https://your.host/chat/webhooks/telegram"
    return Telegram({"secret_token": secret, "bot_token": TOKEN}).sample("hi", sender="4711", id="7", url=url, now=NOW)


async def posted(app: Any, request: Request) -> httpx2.Response:
    """What the app says to it, called from outside."""
    transport = httpx2.ASGITransport(app, client=("203.0.113.7", 1))
    async with httpx2.AsyncClient(transport=transport) as http:
        return await http.post(request.url, content=request.body, headers=dict(request.headers))
