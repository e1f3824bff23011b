"""OAuth for HTTP upstreams, built from the SDK's models and checks, without its `OAuthClientProvider`.

That one holds a lock until a request is answered, has no limit for answers, forgets when tokens expire, and signs in
again on a 401 where a refresh would do.
"""
