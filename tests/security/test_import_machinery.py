"""Imports find what the component carries, and nothing of the host; a script may ruin them for itself only."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, raises, yields

pytestmark = pytest.mark.anyio

ABSENT = raises("ModuleNotFoundError")
MISSING = raises("FileNotFoundError")
MACHINERY = "import importlib, importlib.machinery as machinery, sys"
SLEEP_ANEW = """
spec = machinery.BuiltinImporter.find_spec("time")
module = importlib.util.module_from_spec(spec)
machinery.BuiltinImporter.exec_module(module)
module.sleep(600)
"""
TWIN = "importlib.import_module('json').dumps([1])"


def importing(name: str, attack: str, fate: Fate = ABSENT, setup: str = MACHINERY) -> Attack:
    return Attack(name, attack, fate, f"import importlib\n{TWIN}", "[1]", setup)


ATTACKS = [
    importing("own_portal", "import portal.server"),
    importing("own_manifests", "import manifests.portal_manifest"),
    importing("own_upstreams", "import upstreams"),
    importing("own_engine", "import wasmtime"),
    importing("own_runtime", "import sandbox_runtime.guest.entry"),
    importing(
        "own_runtime_by_its_loader",
        "sys.modules['json'].__loader__.get_code('sandbox_runtime.guest.entry')",
        Fate("script_error"),
        "import json, sys",
    ),
    importing("folder_of_the_host", "sys.path.insert(0, FOLDER)\nimport flag"),
    importing("file_as_a_module", "machinery.SourceFileLoader('flag', FLAG).load_module()", MISSING),
    importing(
        "file_as_a_spec",
        "importlib.util.spec_from_file_location('flag', FLAG + '.py').loader.load_module()",
        MISSING,
        MACHINERY + "\nimport importlib.util",
    ),
    importing("file_as_bytecode", "machinery.SourcelessFileLoader('flag', FLAG).get_code('flag')", MISSING),
    importing(
        "file_by_a_loader",
        "sys.modules['json'].__loader__.get_data(FLAG)",
        Fate("script_error"),
        "import json, sys",
    ),
    importing(
        "finder_for_a_folder",
        "machinery.FileFinder(FOLDER, (machinery.SourceFileLoader, ['.txt'])).find_spec('flag')",
        yields(None),
    ),
    importing("archive_as_a_folder", "sys.path.insert(0, FOLDER + '/x.zip')\nimport x"),
    importing(
        "archive", "zipimport.zipimporter(FLAG)", raises("zipimport.ZipImportError"), "import zipimport"
    ),
    importing("script_by_path", "runpy.run_path(FLAG)", MISSING, "import runpy"),
    importing("site_packages", "site.addsitedir(FOLDER)\nimport flag", ABSENT, "import site"),
    importing("path_file", "site.addpackage(FOLDER, 'flag.txt', set())", Fate(value=None), "import site"),
    importing(
        "resources",
        "importlib.resources.files('json').joinpath('../../..' + FLAG).read_text()",
        Fate("script_error"),
        "import importlib.resources",
    ),
    importing("installer", "import pip"),
    importing("installer_run", "__import__('ensurepip').bootstrap()", Fate("script_error")),
    importing("javascript", "import js"),
    importing("other_sandbox", "import pyodide_js"),
    importing("browser", "webbrowser.open('file://' + FLAG)", yields(False), "import webbrowser"),
    importing(
        "relative_above_everything", "importlib.import_module('..portal', 'tools.git')", Fate("script_error")
    ),
    importing(
        "no_import_at_all", "builtins.__import__ = None\nimport json", Fate("script_error"), "import builtins"
    ),
    importing("no_modules", "sys.modules.clear()\nimport decimal", Fate("script_error")),
    importing("no_finders", "sys.meta_path.clear()\nimport turtle"),
    importing(
        "lying_finder",
        "sys.meta_path.insert(0, type('F', (), {'find_spec': lambda *_: 1 / 0}))\nimport graphlib2",
        raises("ZeroDivisionError"),
    ),
    importing("module_of_ones_own", "sys.modules['git'] = sys\nimport git\ngit is sys", yields(True)),
    importing("builtins_gone", "vars(builtins).clear()", Fate("script_error"), "import builtins"),
    importing(
        "builtins_anew", "importlib.reload(builtins)\nopen(FLAG)", MISSING, "import builtins, importlib"
    ),
    importing("system_anew", "importlib.reload(os)\ndict(os.environ)", yields({}), "import importlib, os"),
    importing(
        "sleep_anew",
        SLEEP_ANEW,
        Fate("script_error", limits={"wall_seconds": 0.3}),
        MACHINERY + "\nimport importlib.util",
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_import_finds_nothing_of_the_host(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS[:1], ids=str)
async def test_standard_library_is_imported(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)
