"""Instagram's direct messages: Messenger's webhooks under another name, from another server. Pure."""

from typing import ClassVar

from turntake.platforms.channel import Option
from turntake.platforms.instagram.replies import InstagramReplies
from turntake.platforms.messenger.webhooks import Messenger
from turntake.platforms.meta.webhooks import VERIFY_TOKEN, api_base
from turntake.platforms.text_limit import TextLimit


class Instagram(Messenger):
    """One app's professional accounts.

    Our own replies come back as webhooks here, always, and are echoes. Comments are not direct messages.
    """

    product = "instagram"
    title = "Instagram"
    text_limit = TextLimit(1000)
    options = (
        Option("app_secret", "The Instagram app's own secret, from its API setup: it signs webhooks.", use="verify"),
        VERIFY_TOKEN,
        Option("access_token", "The account's token, with instagram_business_manage_messages.", use="reply"),
        api_base("https://graph.instagram.com/v25.0"),
    )
    replies = InstagramReplies
    sample_account: ClassVar[str] = "17841400000000001"
