"""The question who we are, put to Slack."""

from collections.abc import Mapping

from turntake.platforms.check import WhoAmI, bearer
from turntake.platforms.replies import ApiCall


def whoami(values: Mapping[str, str]) -> WhoAmI:
    return WhoAmI(
        call=ApiCall(f"{values['api_base'].rstrip('/')}/auth.test", headers=bearer(values["bot_token"])),
        options=("bot_token",),
        name_at=("user", "team"),
        reason_at=("error",),
    )
