"""OAuth for HTTP upstreams, built from the SDK's models and checks, without its `OAuthClientProvider`.

The provider holds a lock until a request is answered, does not limit answers, forgets when tokens expire, and signs in
again on a 401 where a refresh is enough.
"""
