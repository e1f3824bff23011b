"""Grants of a run besides its calls: files, network and environment. All are enforced here, outside the sandbox."""
