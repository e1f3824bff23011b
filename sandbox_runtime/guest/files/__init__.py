"""Mounts the granted workspace as the guest's file system."""
