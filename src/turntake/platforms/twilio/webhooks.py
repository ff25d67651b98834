"""Twilio: SMS, MMS and WhatsApp through Twilio. Pure.

How the signature works: Twilio takes the URL that it calls, with its query, and for a form appends every parameter's
name and value, sorted by name, without anything between them. Over these bytes it makes an HMAC-SHA1 with the auth
token, and sends it in base64 as X-Twilio-Signature. From this follows what is done below:

- The URL must be the one that Twilio calls, to the letter. Behind a proxy only the operator knows it, and sets it as
  TURNTAKE_PUBLIC_URL. Twilio itself is not consistent about the port, so a URL is tried with and without it.
- A form is read to check its signature, before anybody knows who sent it, so its size is limited first.
- A body that is not a form is not part of these bytes. Twilio then puts its SHA-256 into the URL as `bodySHA256`.
- No time is signed. A request that is sent again is valid, and is recognised by its message's id; `content.py` says
  why that id must have Twilio's form. For the same reason `AccountSid` must be ours. Headers are not signed, so
  nothing is read from them.

Twilio's own description: https://www.twilio.com/docs/usage/webhooks/webhooks-security.
"""

import base64
import hashlib
import hmac
import re
from urllib.parse import parse_qsl, urlencode

from turntake.errors import Forged
from turntake.platforms.channel import Channel, Delivery, Needs, Option, Request, WebhookAnswer, keys_in
from turntake.platforms.check import WhoAmI
from turntake.platforms.text_limit import TextLimit
from turntake.platforms.twilio import check
from turntake.platforms.twilio.content import MESSAGE_SID, SIDS, event_of
from turntake.platforms.twilio.replies import REPLY, TwilioReplies

TWIML = b'<?xml version="1.0" encoding="UTF-8"?><Response/>'
FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 1_000
LONGEST_FORM = 262_144
"""In bytes. Anybody can make us read a form, so it may not take long. A message has 1,600 characters at most."""

_URL = re.compile(
    r"(?s)(?P<scheme>https?)://(?P<host>(?:[^/?]*@)?(?:\[[^]/?]*\]|[^/?:]*))(?P<port>:\d+)?(?P<rest>(?:[/?].*)?)"
)


class Twilio(Channel):
    """One Twilio account. Its numbers and senders are told apart by `To`, which is the event's account."""

    title = "Twilio"
    text_limit = TextLimit(1600)  # a longer one is cut off there, and its rest is lost
    signed_by = frozenset({"x-twilio-signature"})
    needs = Needs(signed_url=True)
    replies = TwilioReplies
    options = (
        Option("account_sid", "The account's SID (AC...), from the Twilio console.", use="reply", is_secret=False),
        Option("auth_token", "The account's auth token: checks every webhook, and is needed to reply.", use="verify"),
        Option(
            "from_number",
            "Who replies where a webhook does not say which of our numbers it is for; also a service (MG...).",
            is_secret=False,
        ),
        Option(
            "typing_url",
            "Where a typing indicator is asked for, on WhatsApp.",
            is_secret=False,
            default="https://messaging.twilio.com/v2/Indicators/Typing.json",
        ),
        Option(
            "api_base",
            "Where Twilio's API begins.",
            is_secret=False,
            default="https://api.twilio.com/2010-04-01",
        ),
    )

    def verify(self, request: Request, now: int) -> None:
        """A signature has no time in it: what is sent again is known by its id."""
        keys = keys_in(self._values["auth_token"])
        if not keys:
            raise Forged("No auth token is set, so nobody can be believed: set TURNTAKE_TWILIO_AUTH_TOKEN.")
        header = request.headers.get("x-twilio-signature", "").encode("utf-8", "replace")
        if not header:
            raise Forged("The request has no X-Twilio-Signature, so it is not Twilio's.")
        if _is_form(request) and (len(request.body) > LONGEST_FORM or request.body.count(b"&") >= MOST_FIELDS):
            raise Forged("The form is longer than any of Twilio's.")
        if not _is_covered(request):
            raise Forged("The body is not a form and bodySHA256 is not its hash, so nothing vouches for it.")
        form = _signed_form(request)
        right = [_signature(key, url, form) for key in keys for url in urls_of(request.url)]
        if not any(hmac.compare_digest(header, one) for one in right):
            raise Forged(
                "X-Twilio-Signature is not that of this URL and form: TURNTAKE_PUBLIC_URL must begin the URL "
                "that Twilio calls, and TURNTAKE_TWILIO_AUTH_TOKEN be the account's primary token."
            )
        self._verify_account(request)

    def read(self, request: Request) -> Delivery:
        """The answer is an empty TwiML document. Anything in plain text would be sent to the person."""
        event = event_of(_fields(request), request.query.get(REPLY, ""))
        return Delivery((event,), WebhookAnswer(TWIML, "text/xml"))

    def whoami(self) -> WhoAmI:
        return check.whoami(self._values)

    def sample_id(self, unique: str) -> str:
        return f"SM{unique}"

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        prefix = "whatsapp:" if sender.startswith("whatsapp:") else ""
        sid = id if MESSAGE_SID.fullmatch(id) else "SM" + hashlib.blake2s(id.encode(), digest_size=16).hexdigest()
        fields = {
            **dict.fromkeys(SIDS, sid),
            "AccountSid": self._values["account_sid"] or "AC" + "0" * 32,
            "From": sender,
            "To": prefix + (self._values["from_number"].removeprefix("whatsapp:") or "+15550100000"),
            "Body": text,
            "NumMedia": "0",
            "NumSegments": "1",
            "SmsStatus": "received",
            "ToCity": "",
            "ApiVersion": "2010-04-01",
        }
        body = urlencode(fields).encode()
        unsigned = Request("POST", url, {"content-type": FORM}, body)
        key = [*keys_in(self._values["auth_token"]), b""][0]
        signature = _signature(key, urls_of(url)[0], _signed_form(unsigned)).decode()
        return Request("POST", url, {"content-type": FORM, "x-twilio-signature": signature}, body)

    def _verify_account(self, request: Request) -> None:
        """A parameter whose name was changed counts as missing. Bodies other than forms name no account."""
        ours, fields = self._values["account_sid"].strip(), _fields(request)
        if ours and fields and fields.get("AccountSid") != ours:
            raise Forged("AccountSid is another account's than TURNTAKE_TWILIO_ACCOUNT_SID: set that of this account.")


def urls_of(url: str) -> list[str]:
    """The URL as Twilio may have signed it: as it is, and with the port left out or the default one put in."""
    whole = url.partition("#")[0]
    match = _URL.fullmatch(whole)
    if match is None:
        return [whole]
    scheme, host, port, rest = match["scheme"], match["host"], match["port"], match["rest"]
    other = "" if port else ":443" if scheme == "https" else ":80"
    return [whole, f"{scheme}://{host}{other}{rest}"]


def _signature(key: bytes, url: str, form: bytes) -> bytes:
    return base64.b64encode(hmac.digest(key, url.encode("utf-8", "replace") + form, hashlib.sha1))


def _signed_form(request: Request) -> bytes:
    """Every parameter in the order of the keys; of a repeated one each different value once, sorted."""
    if request.method == "GET" or not _is_form(request):
        return b""
    # Bytes that are not UTF-8 come out as they went in.
    pairs = _pairs(request.body.decode("utf-8", "surrogateescape"), "surrogateescape")
    raw = {(key.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape")) for key, value in pairs}
    return b"".join(key + value for key, value in sorted(raw))


def _is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def _is_covered(request: Request) -> bool:
    """Whether the signature, if it is right, speaks for the body too. A form is signed; the rest only by its hash."""
    if request.method == "GET" or _is_form(request):
        return True
    named = [value for key, value in _pairs(_query(request.url)) if key == "bodySHA256"]
    if not named:
        return not request.body
    right = hashlib.sha256(request.body).hexdigest().encode()
    return hmac.compare_digest(named[0].encode("utf-8", "replace"), right)


def _fields(request: Request) -> dict[str, str]:
    """The parameters; of one that is there twice, the first."""
    if request.method == "GET":
        return dict(reversed(_pairs(_query(request.url))))
    return dict(reversed(_pairs(request.body.decode("utf-8", "replace")))) if _is_form(request) else {}


def _query(url: str) -> str:
    return url.partition("#")[0].partition("?")[2]


def _pairs(form: str, errors: str = "replace") -> list[tuple[str, str]]:
    return parse_qsl(form, keep_blank_values=True, errors=errors)
