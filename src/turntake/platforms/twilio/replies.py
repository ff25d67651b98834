"""Replies through Twilio: SMS, and WhatsApp through Twilio. Pure."""

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from turntake.errors import GiveUp, RetryLater, SendFailed
from turntake.platforms.loose_json import object_in
from turntake.platforms.replies import ApiCall, ApiResponse, Recipient, ReplyApi

WHATSAPP = "whatsapp:"
PAUSE_S = 5
LONGEST_PAUSE_S = 3_600
EXCERPT = 300
THROTTLED = {20429, 21611, 30001, 63018}
PASSING = {408, 425}
ADVICE = {
    20003: "check TURNTAKE_TWILIO_ACCOUNT_SID and TURNTAKE_TWILIO_AUTH_TOKEN",
    21610: "the person opted out, and nothing reaches them before they write START",
    21617: "the reply is longer than Twilio takes",
    63016: "the person's last message is more than 24 hours old, and only a template may be sent",
}


class TwilioReplies(ReplyApi):
    longest = 1600
    typing_ms = 20_000

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        sid = quote(self._values["account_sid"], safe="")
        url = f"{self._values['api_base'].rstrip('/')}/Accounts/{sid}/Messages.json"
        return self._form(url, {"To": to.key.conversation, **self._from(to), "Body": text})

    def check(self, response: ApiResponse) -> str:
        said = object_in(response.body) or {}
        if 200 <= response.status < 300 and isinstance(said.get("sid"), str):
            return str(said["sid"])
        raise _error(response, said)

    def typing_call(self, to: Recipient) -> ApiCall | None:
        """Only WhatsApp has it. It also marks the message as read."""
        heard = to.last.id if to.last else ""
        if not to.key.conversation.startswith(WHATSAPP) or not heard.startswith(("SM", "MM")):
            return None
        return self._form(self._values["typing_url"], {"messageId": heard, "channel": "whatsapp"})

    def _from(self, to: Recipient) -> dict[str, str]:
        """The number that the person wrote to, or else the one that is configured."""
        ours = to.account or self._values["from_number"]
        if not ours:
            raise GiveUp("Twilio did not say which number the message came to: set TURNTAKE_TWILIO_FROM_NUMBER.")
        if ours.startswith("MG"):
            return {"MessagingServiceSid": ours}
        is_whatsapp = to.key.conversation.startswith(WHATSAPP)
        return {"From": f"{WHATSAPP if is_whatsapp else ''}{ours.removeprefix(WHATSAPP)}"}

    def _form(self, url: str, fields: Mapping[str, str]) -> ApiCall:
        # While two tokens are configured for a rotation, the first is the one that is valid now.
        token = self._values["auth_token"].partition(",")[0].strip()
        basic = base64.b64encode(f"{self._values['account_sid']}:{token}".encode()).decode()
        headers = {"content-type": "application/x-www-form-urlencoded", "authorization": f"Basic {basic}"}
        return ApiCall(url, urlencode(fields).encode(), headers)


def _error(response: ApiResponse, said: Mapping[str, Any]) -> Exception:
    code = said["code"] if isinstance(said.get("code"), int) else 0
    status = response.status
    words = str(said.get("message") or "")[:EXCERPT]
    number = f"{status}, error {code}" if code else str(status)
    what = f"Twilio answered {number}: {words}" if words else f"Twilio answered {number}."
    if status == 429 or code in THROTTLED:
        return RetryLater(_pause_s(response), what)
    if not 400 <= status < 500 or status in PASSING:
        return SendFailed(what)
    return GiveUp(f"{what} ({ADVICE[code]})" if code in ADVICE else what)


def _pause_s(response: ApiResponse) -> int:
    asked = response.headers.get("retry-after", "").strip()
    return min(max(int(asked), 1), LONGEST_PAUSE_S) if re.fullmatch(r"[0-9]{1,9}", asked) else PAUSE_S
