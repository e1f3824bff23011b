"""What looks like a secret is known however it is dressed up; what only sounds like one is not."""

import pytest

from portal.passthrough.secret_words import asks_for_secret


@pytest.mark.parametrize(
    "words",
    [
        "Your p\u034fassword?",
        "p\xadassword",
        "p\u00e1ssword",
        "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44",
        "\u0440\u0430ssw\u043erd",
        "\u0420\u0410SSWORD",
        "passw0rd",
        "p.a.s.s.w.o.r.d",
        "pass  word",
        "Pass-\nword",
        "Enter your seed phrase",
        "Enter your recovery phrase",
        "recovery_codes",
        "6-digit verification code from your authenticator app",
        "the 6-digit code",
        "Enter the 2FA code",
        "SMS code please",
        "credit card",
        "Security code on the back of your card",
        "login code",
        "log-in code",
        "apiKey",
        "The PIN, please",
        "one-time code",
        "two-factor code",
        "Do not forget your PIN",
        "Do not enter anything but your PIN.",
        "Do not enter your name, only your PIN.",
        "Do not include spaces in your password.",
        "Do not give us your password yet.",
        "Do not enter your PIN here. Your password?",
        "Do not enter your name. Your PIN.",
        "Never share your password with others.",
        "Donot give us your PIN.",
        "You cannot continue if you do not enter your password.",
        "Your account is closed if you don't send us your PIN; answer here.",
        "We lock the account of those who never enter any PIN or other code (yours now)",
        "What we need if you do not give us your api key: nothing",
        "Your account is closed if you... do not send us your PIN.",
        "Your account is closed if you\u2026 do not send us your PIN.",
        "Your account is closed if you (do not enter your PIN).",
        "Whoever is (do not enter your PIN) is locked out.",
        "These close your account: never enter your PIN.",
        "Your account is closed once he (do not enter your PIN).",
        "An account is closed because it should (do not enter your PIN).",
        "The account that was closed (do not enter your PIN)",
        "Do not enter your name in this field, your PIN is enough.",
        "Do not enter your name in this field, your PIN in this form.",
        "Do not put your PIN in an envelope.",
        'Users who "do not enter your PIN" are locked out.',
        f"Your account{' is, and this takes long,' * 9} closed if you do not enter your PIN.",
    ],
)
def test_what_asks_for_a_secret_is_known(words: str) -> None:
    assert asks_for_secret(words)


@pytest.mark.parametrize(
    "words",
    [
        "Spinning wheel or secretary? How many tokens?",
        "Which tokenizer?",
        "Your zip code, and the country code",
        "Which passage? Whom does it pass?",
        "the compass of a passenger",
        "Seed of the random numbers; what to recover first",
        "\u041a\u0430\u043a \u0432\u0430\u0441 \u0437\u043e\u0432\u0443\u0442?",
        "Wie hei\u00dft du? \u00dcber welchen Stra\u00dfenpass?",
        "\u4f60\u53eb\u4ec0\u4e48\u540d\u5b57",
        "Print the card on which side?",
        "Your favorite integer (do not give us your phone number, PIN, or other sensitive info)",
        "Don\u2019t enter passwords, API keys or other credentials here.",
        '{"description": "A word. Please do not type your password"}',
        '{"description":"Do not type your password"}',
        "Do not enter your PIN here!",
        "Do not enter passwords, tokens or API keys",
        "Do not include secrets or tokens.",
        "Please don't include any credentials in your answer.",
        "Do not put any secrets in this field.",
        "Repository? Never paste API keys here.",
        "Which city? Never enter passwords.",
        '{"title":"City"} Please do not enter any password. {"title":"City"}',
    ],
)
def test_what_does_not_is_not(words: str) -> None:
    assert not asks_for_secret(words)
