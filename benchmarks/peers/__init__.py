"""The portal beside other programs that do its job, in one run."""
