"""Sign-in, the logins of people at upstreams, and who may decide about calls."""
