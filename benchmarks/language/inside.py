"""Runs one file of CPython's own tests; this is the script that is executed in the sandbox.

The workspace holds the suite, an empty folder in which its tests work, and `task.json`: the module, the numbers of
the tests to run (or null for all), and whose library they are to meet: "own", the sandbox's as scripts find it;
"fresh", the same imported anew, without what the sandbox changed in it; "suite", the one that came with the suite.
Each line printed that begins with MARK is JSON for the host: a test that ends the whole run is the one that was
told to begin last.
"""

# mypy: ignore-errors
# ruff: noqa: E402  # what is imported late is imported from the library that was chosen
import asyncio
import importlib.machinery
import importlib.util
import json
import os
import sys

SUITE = "/workspace/suite"
WORK = "/workspace/work"
MARK = "@@language "
MOST_STAND_INS = 4
BUILT_ON = {"termios": ("tty", "pty")}
"""Modules that import, as far as they come, and are of no use without another one."""
KEPT = {"abc", "codecs", "encodings", "genericpath", "importlib", "io", "os", "posixpath", "stat", "site",
        "threading", "zipimport", "_collections_abc"}  # fmt: skip
"""What the interpreter itself holds on to stays as it is."""

output = sys.stdout


def report(**fields):
    output.write(f"\n{MARK}{json.dumps(fields)}\n")
    output.flush()


class SuiteLoader(importlib.machinery.SourceFileLoader):
    def get_data(self, path):
        with open(path, "rb") as file:
            return file.read()


class SuiteFinder:
    """Finds the suite's modules: its tests, and its library if that is wanted."""

    def __init__(self, *, has_library):
        self.has_library = has_library

    def find_spec(self, name, path=None, target=None):
        if not self.has_library and name.partition(".")[0] != "test":
            return None
        stem = f"{SUITE}/{name.replace('.', '/')}"
        for file, places in ((f"{stem}/__init__.py", [stem]), (f"{stem}.py", None)):
            if os.path.isfile(file):
                return importlib.util.spec_from_file_location(
                    name, file, loader=SuiteLoader(name, file), submodule_search_locations=places
                )
        return None


def change_library(kind):
    """Let go of the library as the sandbox changed it, but for its event loop: no other one works in here."""
    if kind == "own":
        return
    policy, loop = asyncio.events._event_loop_policy, asyncio.EventLoop
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None) or ""
        if name.partition(".")[0] not in KEPT and origin.startswith("/python/"):
            del sys.modules[name]
    import asyncio as another

    another.events._event_loop_policy = policy
    another.EventLoop = another.SelectorEventLoop = loop


with open("/workspace/task.json") as file:
    task = json.load(file)
sys.meta_path.insert(0, SuiteFinder(has_library=task["library"] == "suite"))
change_library(task["library"])
os.chdir(WORK)

import sysconfig
import time
import traceback
import types
import unittest

began = time.monotonic()


class Result(unittest.TestResult):
    """Tells each test's beginning, and the worst that came of it."""

    running = False

    def startTest(self, test):  # noqa: N802
        super().startTest(test)
        self.worst = {"outcome": "passed"}
        self.running = True
        report(begins=test.number, after_seconds=time.monotonic() - began)

    def stopTest(self, test):  # noqa: N802
        super().stopTest(test)
        self.running = False
        report(ends=test.number, **self.worst)

    def note(self, test, **worst):
        if self.running:
            # The first error tells what is missing; clean-up that trips over it comes later.
            self.worst = worst if self.worst["outcome"] != "failed" else self.worst
        else:  # setUpClass and setUpModule: the tests below them never begin
            report(group=str(test), **worst)

    def note_error(self, test, error):
        kind, value, _ = error
        trace = "".join(traceback.format_exception(*error))
        self.note(test, outcome="failed", reason=f"{kind.__name__}: {value}"[:1000], trace=trace[-3000:])

    addFailure = addError = note_error  # noqa: N815

    def addSubTest(self, test, subtest, error):  # noqa: N802
        if error is not None:
            self.note_error(test, error)

    def addSkip(self, test, reason):  # noqa: N802
        # A subtest that is left out leaves the rest of its test to count.
        if not isinstance(test, unittest.case._SubTest):
            self.note(test, outcome="skipped", reason=str(reason))

    def addUnexpectedSuccess(self, test):  # noqa: N802
        self.note(test, outcome="failed", reason="unexpected success")


def each(tests):
    for test in tests:
        if isinstance(test, unittest.BaseTestSuite):
            yield from each(test)
        else:
            yield test


def only(tests, numbers):
    """The same tree of suites, so that classes and modules are set up as ever, with some of its tests."""
    kept = type(tests)()
    for test in tests:
        if isinstance(test, unittest.BaseTestSuite):
            below = only(test, numbers)
            if below.countTestCases():
                kept.addTest(below)
        elif test.number in numbers:
            kept.addTest(test)
    return kept


class StandIn(types.ModuleType):
    """For a module of the library that is not in here, and that a file imports for the sake of some of its tests."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Needed(self.__name__)


class Needed:
    """Something of a stand-in: whoever uses it is left out."""

    def __init__(self, module):
        self._module = module

    def __call__(self, *_, **__):
        raise unittest.SkipTest(f"No module named {self._module!r}")

    __bool__ = __iter__ = __enter__ = __getattr__ = __getitem__ = __call__


def imported(module):
    for _ in range(MOST_STAND_INS):
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in sys.stdlib_module_names and not error.name.startswith("_test"):
                raise
            for name in (error.name, *BUILT_ON.get(error.name, ())):
                sys.modules[name] = StandIn(name)
    return importlib.import_module(module)


def load(module):
    """The tests of a module, each with its number: names may be there twice."""
    from test import support

    support.use_resources = ()  # as CPython's own runner starts: without what takes long or a network
    support.has_socket_support = True  # what wants sockets for an event loop runs; what opens one fails
    support.has_subprocess_support = True
    importlib.import_module("test.test_tools")  # others import it for a function that needs no process
    support.has_subprocess_support = False
    support.load_package_tests = lambda folder, loader, tests, pattern: tests  # their files come one by one
    tests = unittest.defaultTestLoader.loadTestsFromModule(imported(module))
    for number, test in enumerate(each(tests)):
        test.number = number
    return tests


def show_library():
    """Let tests that read the library's sources find the suite's: the sandbox carries its own without."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith("/python/"):
            module.__file__ = SUITE + file.removeprefix("/python")


def main():
    show_library()
    sysconfig.get_config_vars()["CONFIG_ARGS"] = ""  # of componentize-py's build; it lacks a closing quote
    try:
        tests = load(task["module"])
    except BaseException as error:
        is_skip = isinstance(error, unittest.SkipTest)
        reason = str(error) if is_skip else f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        report(file="skipped" if is_skip else "failed", reason=reason[:1000], trace=trace[-3000:])
        return
    report(tests=[test.id() for test in each(tests)])
    numbers = task["numbers"]
    (tests if numbers is None else only(tests, frozenset(numbers))).run(Result())
    report(file="done")


main()
