"""Slack's API: nearly everything is HTTP 200, and `ok` says whether it worked."""

from collections import Counter
from typing import Any

from harness.platforms.server import FakeAnswer, FakeRequest, Platform

TOKEN = "xoxb-recorded"


class SlackApi(Platform):
    """Takes posts for the channels that the bot is in, `burst` in each before it throttles once.

    `posts` are whole, `statuses` what threads show, `alarms` texts that would have called everybody.
    """

    def __init__(self, *channels: str, burst: int = 100) -> None:
        super().__init__()
        self.channels = set(channels)
        self.archived: set[str] = set()
        self.burst = burst
        self.posts: list[dict[str, Any]] = []
        self.statuses: list[tuple[str, str, str]] = []
        self.alarms: list[str] = []
        self._since_throttled: Counter[str] = Counter()

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return no("invalid_auth")
        if not asked.headers.get("content-type", "").startswith("application/json"):
            return no("invalid_form_data")
        methods = {"/chat.postMessage": self._post, "/assistant.threads.setStatus": self._status}
        method = methods.get(asked.path)
        return method(asked.json) if method and asked.method == "POST" else no("unknown_method")

    def _post(self, body: dict[str, Any]) -> FakeAnswer:
        channel, text = body["channel"], body.get("text", "")
        if wrong := self._wrong(channel, text):
            return no(wrong)
        self._since_throttled[channel] += 1
        if self._since_throttled[channel] > self.burst:
            self._since_throttled[channel] = 0
            return FakeAnswer(429, {"ok": False, "error": "ratelimited"}, {"retry-after": "1"})
        if "<!" in text:
            self.alarms.append(text)
        self.posts.append(body)
        # Longer ones it cuts itself.
        for start in range(0, len(text), 4000 if len(text) > 4040 else len(text)):
            self.took(channel, text[start : start + 4040 if len(text) <= 4040 else start + 4000])
        return FakeAnswer(body={"ok": True, "channel": channel, "ts": f"1790000000.{len(self.posts):06d}"})

    def _wrong(self, channel: str, text: str) -> str:
        if channel not in self.channels:
            return "channel_not_found"
        if channel in self.archived:
            return "is_archived"
        return "no_text" if not text else "msg_too_long" if len(text) > 40_000 else ""

    def _status(self, body: dict[str, Any]) -> FakeAnswer:
        if body["channel_id"] not in self.channels or not body.get("thread_ts"):
            return no("invalid_arguments")
        self.statuses.append((body["channel_id"], body["thread_ts"], body["status"]))
        return FakeAnswer(body={"ok": True})


def no(error: str, **more: str) -> FakeAnswer:
    """A refusal as Slack puts it."""
    return FakeAnswer(body={"ok": False, "error": error, **more})
