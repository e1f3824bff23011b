"""What the name of a variable, a key or an option says of its value."""

import re
from functools import lru_cache
from typing import Final

_CREDENTIAL: Final = re.compile(
    r"TOKEN(?!IZ|S_?(?:USED|COUNT|LIMIT))|SECRET(?!AR)|PASSW(?!ORDLESS)|PASSPHRASE|PASSCODE|CREDENTIAL|AUTHORI[SZ]ATION"
    r"|AUTH(?!OR)|BEARER|COOKIE"
    r"|(?<!^MON)(?<!_MON)(?<!^TUR)(?<!_TUR)(?<!^DON)(?<!_DON)(?<!^HOC)(?<!_HOC)(?<!^WHIS)(?<!_WHIS)KEYS?(?:_|$)"
    r"|(?:^|_)(?:CREDS?|JWT|PASS|PW|PWD|PAT|PSK)(?:_|$)"
    r"|MNEMONIC|(?:SEED|RECOVERY|BACKUP|WALLET)_?PHRASE|(?:^|_)(?:MFA|TOTP|OTP|HD|WALLET)_?SEED$"
    r"|(?<!BY)(?<!COM)(?<!OVER)(?<!UNDER)(?<!SUR)(?<!TRES)PASS$|(?<!OLD)PWD$"
    r"|(?:^|_)(?:SESSION(?:_?ID)?|OTP|PIN|SIG|SIGNATURE|SAS|PRIVATE)$",
    re.IGNORECASE,
)
_SETTING: Final = re.compile(
    r"(?:FILE|FOLDER|PATH|DIR|DIRECTORY|HOST|PORT|ENDPOINT|UR[IL]|NAME|TYPE|MODE|METHOD|PROVIDER|REGION|SCOPES?"
    r"|DOMAIN|TENANT(?:_?ID)?|ISSUER|AUDIENCE|REALM|CLIENT_?ID|SOCK|VAULT|ARN|(?:SORT|PARTITION)_?KEY"
    r"|^_*(?:DESKTOP|TMUX)_SESSION)$",
    re.IGNORECASE,
)
_DATABASE: Final = re.compile(
    r"DSN(?:_|$)|CONNECTION_?STRING|(?:DB|DATABASE|SQL|MONGO|REDIS)\w*UR[IL]$", re.IGNORECASE
)


def is_credential_name(name: str) -> bool:
    """Whether a variable of that name is filled with a credential, wherever it stands."""
    return is_secret_name(name) or is_database_name(name)


@lru_cache(1_000)
def is_secret_name(name: str) -> bool:
    """Whether all that goes by that name is secret."""
    name = name.replace("-", "_")
    return bool(_CREDENTIAL.search(name)) and not _SETTING.search(name)


def is_database_name(name: str) -> bool:
    """Whether it is of an address that holds a login, such as `DATABASE_URL`."""
    return bool(_DATABASE.search(name.replace("-", "_")))


def is_option(argument: str) -> bool:
    """Whether it names what the next argument is."""
    return argument.startswith("-") and "=" not in argument
