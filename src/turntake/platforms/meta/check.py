"""The question who we are, put to Meta's Graph API."""

from collections.abc import Mapping

from turntake.platforms.check import WhoAmI, api_get, bearer
from turntake.platforms.meta.replies import access_token


def whoami(values: Mapping[str, str], path: str = "me", options: tuple[str, ...] = ()) -> WhoAmI:
    """`path` is what the token should give access to; `options` are those in the path."""
    return WhoAmI(
        call=api_get(values, path, bearer(access_token(values))),
        options=("access_token", *options),
        name_at=("verified_name", "display_phone_number", "name", "id"),
        reason_at=("error.message",),
    )
