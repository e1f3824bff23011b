"""The console: pages that show what a portal is doing, and let people decide what waits."""
