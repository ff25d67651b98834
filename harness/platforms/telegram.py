"""Telegram's Bot API, as far as replies need it."""

from harness.platforms.server import FakeAnswer, FakeRequest, Platform

TOKEN = "700700:AAH-the-bots-own-secret"
LONGEST = 4096


class TelegramApi(Platform):
    """Knows one bot, and the chats in `chats`. `blocked` are people who want nothing from it.

    `webhook` is the address that setWebhook was called with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.chats: set[int] = {4711, -1002345678901, -1005}
        self.direct: set[int] = {-1005}
        """Those that are the direct messages of a channel."""
        self.connections: set[str] = {"bc77"}
        self.blocked: set[int] = set()
        self.webhook = ""
        self.typed: list[tuple[int, str]] = []

    @property
    def options(self) -> dict[str, str]:
        """What the channel is set up with to reach this API."""
        return {"secret_token": "sesame", "bot_token": TOKEN, "api_base": self.url}

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        root, _, method = asked.path.rpartition("/")
        if root != f"/bot{TOKEN}":
            return refusal(401, "Unauthorized")
        if method == "getMe":
            return FakeAnswer(body={"ok": True, "result": {"id": 700700, "is_bot": True, "first_name": "Bot"}})
        if method == "getWebhookInfo":
            return FakeAnswer(body={"ok": True, "result": {"url": self.webhook, "pending_update_count": 0}})
        if asked.method != "POST" or asked.headers.get("content-type") != "application/json":
            return refusal(400, "Bad Request: unsupported request")
        said = asked.json
        if problem := self._problem(said):
            return problem
        if method == "sendChatAction":
            self.typed.append((said["chat_id"], said["action"]))
            return FakeAnswer(body={"ok": True, "result": True})
        return self._send(said) if method == "sendMessage" else refusal(404, "Not Found")

    def _problem(self, said: dict[str, object]) -> FakeAnswer | None:
        if said.get("chat_id") not in self.chats:
            return refusal(400, "Bad Request: chat not found")
        if said["chat_id"] in self.blocked:
            return refusal(403, "Forbidden: bot was blocked by the user")
        if said.get("business_connection_id", "bc77") not in self.connections:
            return refusal(400, "Bad Request: business connection not found")
        if not isinstance(said.get("message_thread_id", 0), int):
            return refusal(400, "Bad Request: message thread not found")
        if (said["chat_id"] in self.direct) != isinstance(said.get("direct_messages_topic_id"), int):
            return refusal(400, "Bad Request: direct messages topic must be specified")
        return None

    def _send(self, said: dict[str, object]) -> FakeAnswer:
        text = str(said.get("text", ""))
        if not text.strip():
            return refusal(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > LONGEST:
            return refusal(400, "Bad Request: message is too long")
        self.took(str(said["chat_id"]), text)
        return FakeAnswer(body={"ok": True, "result": {"message_id": 1000 + len(self.sent), "date": 1, "text": text}})


def refusal(code: int, description: str, **parameters: int) -> FakeAnswer:
    said: dict[str, object] = {"ok": False, "error_code": code, "description": description}
    return FakeAnswer(code, said | ({"parameters": parameters} if parameters else {}))
