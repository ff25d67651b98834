"""The question who we are, put to Discord: the bot's own user."""

from collections.abc import Mapping

from turntake.platforms.check import WhoAmI, api_get
from turntake.platforms.discord.replies import bot_headers


def whoami(values: Mapping[str, str]) -> WhoAmI:
    return WhoAmI(
        call=api_get(values, "users/@me", bot_headers(values)),
        options=("bot_token",),
        name_at=("username", "id"),
        reason_at=("message",),
    )
