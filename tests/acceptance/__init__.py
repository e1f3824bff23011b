"""The product's promises, as its users see them: the net below every refactoring.

These tests talk to the portal only through MCP clients, the command line and files. They import nothing of portal,
upstreams, sandbox_runtime or manifests (`test_the_net.py`), so that no refactoring has a reason to touch them. A change
of one of them is a change of a promise: say so in the commit.

To add a promise, find the file of its subject. Most are tables: add a row of script and outcome. `model.py` is what a
model does, `portal_process.py` starts portals as users do, `peers/` holds upstreams written for the tests, and
`real_servers.py` names third-party ones.
"""
