"""What can go wrong with OAuth. No message holds a token, a code or a secret, or more of a stranger's text than a word.

OAuthError
├── OAuthRefusedError        an authorization server said no, or cannot be trusted: asking again will not help
└── OAuthUnreachableError    it could not be asked, or made no sense: later it may
"""


class OAuthError(Exception):
    """There is no token to be had."""

    hint = ""


class OAuthRefusedError(OAuthError):
    """The answer was no; `code` is OAuth's own word for it, if it gave one."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class OAuthUnreachableError(OAuthError):
    """There was no answer that could be used."""
