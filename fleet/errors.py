"""The one error a person is meant to read, and the masking of credentials in all that is printed."""

import re
from urllib.parse import unquote

# The user part of an address may hold a token. `git@` is the fixed user of hosts over ssh.
_USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)(?!git@)[^\s/'\"]+@")
_QUERY = re.compile(r"(?i)([?&][^=&\s]*(?:token|key|secret|password)[^=&\s]*=)[^&\s'\"]+")
_secrets: set[str] = set()


class FleetError(Exception):
    """A refusal: says what was found, what was expected and what to do. Nothing was touched."""

    def __init__(self, message: str) -> None:
        super().__init__(mask(message))


def learn_secrets(url: str) -> None:
    """Remember the credentials in `url`, so that they are masked wherever a program repeats them."""
    found = re.match(r"(?i)[a-z][a-z0-9+.-]*://([^\s/]+)@", url)
    parts = re.split(":", found[1]) if found else []
    # A name such as `git` or `oauth2` is no secret, and masking it would spoil ordinary words.
    for part in parts:
        if len(part) >= 8:
            _secrets.update((part, unquote(part)))


def mask(text: str) -> str:
    """Return `text` with the credentials of every address in it replaced by ***."""
    text = _QUERY.sub(r"\1***", _USER.sub(r"\1***@", text))
    for secret in _secrets:
        text = text.replace(secret, "***")
    return text


def strip_credentials(url: str) -> str:
    """Return `url` without the user part of an http address, as it may be written to a file."""
    return re.sub(r"(?i)^(https?://)[^\s/]+@", r"\1", url)
