"""OAuth for upstreams by URL, built from the SDK's models and checks, but not on its `OAuthClientProvider`: that one
holds a lock until a request is answered, reads every answer whole, forgets when tokens expire, and signs in anew on a
401 where a refresh would do.
"""
