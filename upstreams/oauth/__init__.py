"""OAuth for upstreams by URL: finding the authorization server, signing in, keeping tokens and renewing them.

Built from the SDK's models and checks (`mcp.client.auth.utils`, `mcp.shared.auth`), but not on its
`OAuthClientProvider`: that one holds a lock until a request is answered, so that one slow call would hold up all
others, reads every answer whole, so that no progress would arrive, forgets when tokens expire, and signs in anew on a
401 where a refresh would do.
"""
