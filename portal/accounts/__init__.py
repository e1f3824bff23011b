"""The accounts of people at upstreams: who calls with which login, where logins are kept, and how people sign in."""
