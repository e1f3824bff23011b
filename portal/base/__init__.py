"""The base that every package may use: errors, texts, tokens, requests and callers."""
