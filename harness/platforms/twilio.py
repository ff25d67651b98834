"""Twilio's API, as far as replies need it."""

import base64

from harness.platforms.server import FakeAnswer, FakeRequest, Platform

ACCOUNT = "AC11111111111111111111111111111111"
TOKEN = "twilio-token"
LONGEST = 1600
SENT = f"/Accounts/{ACCOUNT}/Messages.json"
TYPING = "/typing"


class TwilioApi(Platform):
    """Knows one account. `opted_out` are people who wrote STOP, `closed` those whose 24 hours are over."""

    def __init__(self) -> None:
        super().__init__()
        self.opted_out: set[str] = set()
        self.closed: set[str] = set()
        self.typed: list[str] = []

    @property
    def options(self) -> dict[str, str]:
        """What the channel is set up with to reach this API."""
        return {
            "account_sid": ACCOUNT,
            "auth_token": TOKEN,
            "from_number": "",
            "typing_url": self.url + TYPING,
            "api_base": self.url,
        }

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        basic = base64.b64encode(f"{ACCOUNT}:{TOKEN}".encode()).decode()
        if asked.headers.get("authorization") != f"Basic {basic}":
            return refusal(401, 20003, "Authenticate")
        if asked.method == "GET" and asked.path == f"/Accounts/{ACCOUNT}.json":
            return FakeAnswer(body={"sid": ACCOUNT, "status": "active"})
        if asked.headers.get("content-type") != "application/x-www-form-urlencoded" or asked.method != "POST":
            return refusal(400, 20001, "Bad request")
        form = {name: values[0] for name, values in asked.form.items()}
        if asked.path == TYPING:
            return self._type(form)
        return self._send(form) if asked.path == SENT else refusal(404, 20404, "The requested resource was not found")

    def _send(self, form: dict[str, str]) -> FakeAnswer:
        to, text = form.get("To", ""), form.get("Body", "")
        if problem := self._problem(form, to, text):
            return problem
        self.took(to, text)
        return FakeAnswer(201, {"sid": f"SM{len(self.sent):032x}", "status": "queued", "error_code": None})

    def _problem(self, form: dict[str, str], to: str, text: str) -> FakeAnswer | None:
        whom = form.get("From") or form.get("MessagingServiceSid", "")
        if not whom:
            return refusal(400, 21603, "A 'From' phone number is required")
        if not text:
            return refusal(400, 21602, "Message body is required")
        if len(text) > LONGEST:
            return refusal(400, 21617, "The concatenated message body exceeds the 1600 character limit")
        if to in self.opted_out:
            return refusal(400, 21610, "Attempt to send to unsubscribed recipient")
        if to in self.closed:
            return refusal(400, 63016, "Failed to send freeform message because you are outside the allowed window")
        if to.startswith("whatsapp:") != whom.startswith("whatsapp:") and "From" in form:
            return refusal(400, 63007, "Could not find a Channel with the specified From address")
        return None

    def _type(self, form: dict[str, str]) -> FakeAnswer:
        if form.get("channel") != "whatsapp" or not form.get("messageId", "").startswith(("SM", "MM")):
            return refusal(400, 20001, "Invalid message id")
        self.typed.append(form["messageId"])
        return FakeAnswer(body={"success": True})


def refusal(status: int, code: int, message: str, **headers: str) -> FakeAnswer:
    said = {"code": code, "message": message, "more_info": f"https://www.twilio.com/docs/errors/{code}"}
    return FakeAnswer(
        status, said | {"status": status}, {name.replace("_", "-"): value for name, value in headers.items()}
    )
