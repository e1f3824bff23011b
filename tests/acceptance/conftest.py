"""Where process trees cannot be looked at through /proc and pidfds, the tests that do are left out."""

import sys

collect_ignore = [] if sys.platform == "linux" else ["test_orphans.py"]
