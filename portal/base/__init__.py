"""What every room may use: errors, texts, tokens, requests and callers."""
