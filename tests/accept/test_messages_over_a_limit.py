"""Platforms report more than the rules allow: they are thanked all the same, and the person hears of it once."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from harness.platforms.telegram import TelegramApi
from harness.servers import talking
from turntake import Rules, TurnTake
from turntake.deliver.replies import Replies
from turntake.platforms.telegram.replies import TelegramReplies
from turntake.platforms.telegram.webhooks import Telegram
from turntake.testing.clock import VirtualClock

RULES = Rules(
    silence_ms=60_000,
    typing_inference_ms=60_000,
    max_wait_ms=600_000,
    messages_per_minute=2,
    limit_text="Slowly, please.\n@de Langsam, bitte.",
)
KEY = "default:telegram:700700:4711"
PATH = "/webhooks/telegram"


class Turns(TurnTake):
    """Closes its connections to the platform too, on the event loop that they were opened on."""

    async def __aexit__(self, *raised: Any) -> None:
        await super().__aexit__(*raised)
        await self._outbound.aclose()


@pytest.fixture
def api() -> Iterator[TelegramApi]:
    with TelegramApi() as api:
        yield api


def post(client: httpx2.Client, api: TelegramApi, id: int) -> int:
    sample = Telegram(api.options).sample(f"text {id}", sender="4711", id=str(id), url=PATH, now=VirtualClock().wall())
    return client.post(PATH, content=sample.body, headers=sample.headers).status_code


def test_a_platform_that_reports_too_much_is_thanked_and_the_person_is_told_once(api: TelegramApi) -> None:
    """Two messages are taken and ten are not. None of those is lost or answered, and none makes others wait longer."""
    outbound = Replies({("telegram", ""): TelegramReplies(api.options)})
    turns = Turns("memory://", rules=RULES, role="accept", outbound=outbound, clock=VirtualClock())
    with talking(turns, channels={("telegram", ""): Telegram(api.options)}) as client:
        assert {post(client, api, id) for id in range(1, 13)} == {200}
        assert {post(client, api, id) for id in (2, 3, 12)} == {200}, "a redelivery"
        listed = client.get(f"/v1/conversations/{KEY}/turns?limit=4").json()
        pages = [listed["turns"]]
        while listed["cursor"]:
            listed = client.get(f"/v1/conversations/{KEY}/turns?limit=4&cursor={listed['cursor']}").json()
            pages.append(listed["turns"])
        found = client.get(f"/v1/conversations/{KEY}").json()
        one = client.get(f"/v1/turns/{pages[0][0]['turnId']}").json()
    rejected = [turn for page in pages for turn in page]
    assert {(turn["status"], turn["reason"]) for turn in rejected} == {("rejected", "messages_per_minute")}
    assert [turn["text"] for turn in rejected] == [f"text {id}" for id in range(12, 2, -1)]
    assert [len(page) for page in pages] == [4, 4, 2]
    assert [message["text"] for message in found["messages"]] == ["text 1", "text 2"]
    assert {turn["status"] for turn in found["turns"]} == {"rejected"}
    assert (one["status"], one["text"]) == ("rejected", "text 12")
    assert api.sent == [("4711", "Slowly, please.")]
