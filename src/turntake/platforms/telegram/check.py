"""What Telegram is asked: who the bot is, and which address it calls. The token is in the URL, so no URL is shown."""

from collections.abc import Mapping

from turntake.platforms.check import Verdict, WebhookCheck, WhoAmI, api_get
from turntake.platforms.loose_json import at, object_in, text_at
from turntake.platforms.replies import ApiCall, ApiResponse
from turntake.platforms.telegram.replies import path_of
from turntake.retry_after import excerpt


def whoami(values: Mapping[str, str]) -> WhoAmI:
    return WhoAmI(
        call=_call(values, "getMe"),
        options=("bot_token",),
        name_at=("result.username", "result.id"),
        reason_at=("description",),
    )


def webhook_check(values: Mapping[str, str], url: str, is_public: bool) -> WebhookCheck:
    def read(response: ApiResponse) -> Verdict:
        info = at(object_in(response.body), "result")
        if not isinstance(info, dict):
            return Verdict("warn", "the platform did not say which address it calls")
        registered, error = excerpt(text_at(info, "url")), excerpt(text_at(info, "last_error_message"))
        if not registered:
            return Verdict("fail", f"Telegram calls nobody yet: call setWebhook with url={url} and the secret_token")
        if is_public and registered != url:
            return Verdict("fail", f"Telegram calls {registered} instead of {url}: call setWebhook again")
        if error:
            return Verdict("warn", f"Telegram's last call failed: {error}")
        return Verdict("ok", f"Telegram calls {registered}")

    return WebhookCheck(_call(values, "getWebhookInfo"), read)


def _call(values: Mapping[str, str], method: str) -> ApiCall:
    return api_get(values, path_of(values, method), {})
