"""Replies through Twilio: SMS, and WhatsApp through Twilio. Pure."""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from turntake.errors import GiveUp, SendFailed
from turntake.platforms.loose_json import integer_at, object_in, text_at
from turntake.platforms.replies import ApiCall, ApiResponse, Recipient, ReplyApi, path_id, retry_later
from turntake.retry_after import excerpt

WHATSAPP = "whatsapp:"
REPLY = "reply"
"""The parameter of the address for status reports that names the reply; Twilio signs it with the rest."""
PAUSE_MS = 5_000
"""How long to wait where Twilio throttles without saying: an ordinary number sends about one SMS per second."""
THROTTLED = {20429, 21611, 30001, 63018}
PASSING = {408, 425}
ADVICE = {
    20003: "check TURNTAKE_TWILIO_ACCOUNT_SID and TURNTAKE_TWILIO_AUTH_TOKEN",
    21610: "the person opted out, and nothing reaches them before they write START",
    21617: "the reply is longer than Twilio takes",
    30003: "the phone is switched off or out of reach",
    30004: "the person or the carrier blocks this number",
    30005: "there is no such number",
    30006: "a landline, or a carrier that takes no SMS",
    30007: "the carrier takes it for spam",
    30034: "the number is not registered with the carriers (A2P 10DLC)",
    63016: "the person's last message is more than 24 hours old, and only a template may be sent",
}


class TwilioReplies(ReplyApi):
    """One account's numbers and senders. A reply leaves from the number that the person wrote to."""

    longest = 1600
    # An indicator is shown for 25 seconds, so this renews it in time.
    typing_ms = 20_000

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        sid = path_id(self._values["account_sid"], "The account's SID")
        url = f"{self._values['api_base'].rstrip('/')}/Accounts/{sid}/Messages.json"
        report_to = {"StatusCallback": f"{self.webhook_url}?{REPLY}={quote(reply_id)}"} if self.webhook_url else {}
        return self._form(url, {"To": to.key.conversation, **self._from(to), "Body": text, **report_to})

    def check(self, response: ApiResponse) -> str:
        payload = object_in(response.body) or {}
        sid = text_at(payload, "sid")
        if not response.is_success or not sid:
            raise _error(response, payload)
        return sid

    def typing_call(self, to: Recipient) -> ApiCall | None:
        """Only WhatsApp has it. It also marks the message as read."""
        last = to.last.id if to.last else ""
        if not to.key.conversation.startswith(WHATSAPP) or not last.startswith(("SM", "MM")):
            return None
        return self._form(self._values["typing_url"], {"messageId": last, "channel": "whatsapp"})

    def _from(self, to: Recipient) -> dict[str, str]:
        """The number that the person wrote to, or else the one that is configured."""
        number = to.account or self._values["from_number"]
        if not number:
            raise GiveUp("Twilio did not say which number the message came to: set TURNTAKE_TWILIO_FROM_NUMBER.")
        if number.startswith("MG"):
            return {"MessagingServiceSid": number}
        is_whatsapp = to.key.conversation.startswith(WHATSAPP)
        return {"From": f"{WHATSAPP if is_whatsapp else ''}{number.removeprefix(WHATSAPP)}"}

    def _form(self, url: str, fields: Mapping[str, str]) -> ApiCall:
        headers = {"content-type": "application/x-www-form-urlencoded", **basic_auth(self._values)}
        return ApiCall(url, urlencode(fields).encode(), headers)


def basic_auth(values: Mapping[str, str]) -> dict[str, str]:
    # While two tokens are configured for a rotation, the first is the one that is valid now.
    token = values["auth_token"].partition(",")[0].strip()
    credentials = base64.b64encode(f"{values['account_sid']}:{token}".encode()).decode()
    return {"authorization": f"Basic {credentials}"}


def _error(response: ApiResponse, payload: dict[str, Any]) -> Exception:
    code, status = integer_at(payload, "code") or 0, response.status
    words = excerpt(text_at(payload, "message"))
    number = f"{status}, error {code}" if code else str(status)
    text = f"Twilio answered {number}: {words}" if words else f"Twilio answered {number}."
    if status == 429 or code in THROTTLED:
        return retry_later(text, response.headers.get("retry-after"), PAUSE_MS)
    if not 400 <= status < 500 or status in PASSING:
        return SendFailed(text)
    return GiveUp(f"{text} ({ADVICE[code]})" if code in ADVICE else text)
