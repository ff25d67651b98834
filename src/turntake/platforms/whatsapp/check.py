"""The question who we are, put to WhatsApp: the number that answers, or else whoever the token belongs to."""

from collections.abc import Mapping
from urllib.parse import quote

from turntake.platforms.check import WhoAmI
from turntake.platforms.meta import check


def whoami(values: Mapping[str, str]) -> WhoAmI:
    number = values["phone_number_id"]
    if not number:
        return check.whoami(values)
    path = f"{quote(number, safe='')}?fields=display_phone_number,verified_name"
    return check.whoami(values, path, ("phone_number_id",))
