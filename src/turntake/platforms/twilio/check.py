"""The question who we are, put to Twilio: the account's own record."""

from collections.abc import Mapping
from urllib.parse import quote

from turntake.platforms.check import WhoAmI, api_get
from turntake.platforms.twilio.replies import basic_auth


def whoami(values: Mapping[str, str]) -> WhoAmI:
    return WhoAmI(
        call=api_get(values, f"Accounts/{quote(values['account_sid'], safe='')}.json", basic_auth(values)),
        options=("account_sid", "auth_token"),
        name_at=("friendly_name", "sid"),
        reason_at=("message",),
    )
