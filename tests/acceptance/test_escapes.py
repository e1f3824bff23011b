"""Scripts that try to get out: each attack is reached and fails as listed, and the portal keeps working."""

from collections.abc import AsyncIterator

import pytest

from tests.acceptance.hostile import ANYTHING, RAW_HOST, VALUE, Arena, Attack, Attacks, arena, each
from tests.security.hostile import ALL_MEMORY, OWN_FRAMES

pytestmark = pytest.mark.anyio

NUMBER = """
import asyncio, sys
from wit_world.imports import host
class Number:
    def __init__(self, act): self.act = act
    def __index__(self): return self.act() or 0
"""
IMPORTS = "import importlib, importlib.machinery as machinery, sys\n"
BYTECODE = """
import opcode
def crafted(*steps):
    def f(): return None
    code = bytes([opcode.opmap["RESUME"], 0])
    for name, argument in steps:
        code += bytes([opcode.opmap[name] if isinstance(name, str) else name, argument])
    f.__code__ = f.__code__.replace(co_code=code, co_stacksize=1)
    return f
END = ("RETURN_VALUE", 0)
"""

ATTACKS = [
    Attacks(
        "environment",
        VALUE,
        {
            "all_variables": ("import os\ndict(os.environ)", {}),
            "one_variable": ("import os\nos.getenv('MCP_CODE_PORTAL_BAIT')", None),
            "variables_of_the_interpreter": ("import os, posix\ndict(posix.environ)", {}),
            "home": ("import os\nos.path.expanduser('~')", "~"),
            "arguments": ("import sys\n[*sys.argv, *sys.orig_argv]", ["script.py"]),
            "executable": ("import sys\nsys.executable", ""),
            "machine": (
                """\
import platform
def who():
    return [platform.node(), platform.machine(), platform.processor()]
who()
""",
                ["(none)", "wasm32", ""],
            ),
            "name_of_the_machine": ("import socket\nsocket.gethostname()", "(none)"),
            "typed_input": ("import sys\nsys.__stdin__.read()", ""),
            "time_zone": ("import time\nlist(time.tzname)", ["UTC", "UTC"]),
            "locale_of_the_operator": (
                "import locale\nlist(locale.setlocale(locale.LC_ALL, '').split(';'))[:1]",
                ["C.UTF-8"],
            ),
            "folders_of_the_build": (
                """\
import sys
[path for path in sys.path if 'home' in path or 'tmp' in path or 'site-packages' in path]
""",
                [],
            ),
        },
    ),
    Attacks(
        "environment",
        "script_error: FileNotFoundError",
        {"variables_through_the_file_system": "import os\nopen('/proc/self/environ').read()"},
    ),
    Attacks("environment", "script_error: OSError", {"user": "import getpass\ngetpass.getuser()"}),
    Attacks(
        "environment",
        "script_error: importlib.metadata.PackageNotFoundError",
        {
            "packages_of_the_operator": "import importlib.metadata\nimportlib.metadata.version('mcp-code-portal')"
        },
    ),
    Attacks(
        "host files",
        "script_error: FileNotFoundError",
        {
            "open": "import io\nopen(FLAG).read()",
            "open_relative": "import io\nopen('portal.yaml')",
            "climb": "import os\nopen('../' * 40 + FLAG.lstrip('/'))",
            "raw_open": "import os\nos.open(FLAG, os.O_RDONLY)",
            "write": "import io\nopen(FOLDER + '/made', 'w')",
            "list_folder": "import os\nos.listdir(FOLDER)",
            "remove": "import os\nos.unlink(FLAG)",
            "link": "import os\nos.link(FLAG, FOLDER + '/x')",
            "symlink": "import os\nos.symlink('/etc', FOLDER + '/x')",
            "make_folder": "import os\nos.makedirs(FOLDER + '/x')",
            "truncate": "import os\nos.truncate(FLAG, 0)",
            "path_object": "from pathlib import Path\nPath(FLAG).read_text()",
            "temporary_file": "import tempfile\ntempfile.mkstemp()",
            "archive": "import io, zipfile\nzipfile.ZipFile(FLAG)",
            "entity_of_a_document": """\
import xml.parsers.expat
parser = xml.parsers.expat.ParserCreate()
parser.ExternalEntityRefHandler = lambda *names: open(names[2])
parser.Parse(f'<!DOCTYPE a [<!ENTITY b SYSTEM "{FLAG}">]><a>&b;</a>', True)
""",
            "log_file": "import logging\nlogging.basicConfig(filename=FOLDER + '/made')",
        },
    ),
    Attacks(
        "host files",
        VALUE,
        {
            "descriptor_zero": ("import sys\nopen(0).read()", ""),
            "walk": ("import os\nlist(os.walk('/'))", []),
            "glob": ("import glob\nglob.glob(FOLDER + '/*')", []),
            "access": ("import os\nos.access('/', os.R_OK)", False),
            "source_of_a_module": ("import linecache\nlinecache.getlines(FLAG)", []),
            "descriptors_of_the_worker": (
                """\
import os
def opens(descriptor):
    try:
        return os.fstat(descriptor) is not None
    except OSError:
        return False
[fd for fd in range(3, 300) if opens(fd)]
""",
                [],
            ),
        },
    ),
    Attacks(
        "host files",
        "script_error: sqlite3.OperationalError",
        {
            "database_by_uri": """\
import sqlite3
sqlite3.connect(f'file:{FLAG}?mode=ro&immutable=1', uri=True).execute('pragma schema_version')
""",
            "database_backup": """\
import sqlite3
sqlite3.connect(':memory:').execute(f"vacuum into '{FOLDER}/made.db'")
""",
        },
    ),
    Attacks(
        "host files",
        "script_error: OSError: [Errno 8]",
        {"descriptor_of_the_channel": "import os\nos.read(3, 100)"},
    ),
    Attacks(
        "sockets",
        "script_error: PermissionError",
        {
            "socket": "import socket\nsocket.socket()",
            "datagram": """\
import socket
socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))
""",
            "listen": "import socket\nsocket.create_server(('127.0.0.1', 0))",
            "raw_module": "import _socket\n_socket.socket().connect(('127.0.0.1', PORT))",
            "asyncio_connection": "await asyncio.open_connection('127.0.0.1', PORT)",
        },
    ),
    Attacks(
        "sockets",
        "script_error: socket.gaierror",
        {
            "connect": "import socket\nsocket.create_connection(('127.0.0.1', PORT))",
            "name": "import socket\nsocket.getaddrinfo('localhost', 80)",
            "leak_by_name": "import ipaddress, socket\nsocket.gethostbyname('secret.example.com')",
            "http_client": """\
import http.client
http.client.HTTPConnection('127.0.0.1', PORT).request('GET', '/')
""",
        },
    ),
    Attacks(
        "sockets", "script_error: OSError: [Errno 8]", {"take_over": "import socket\nsocket.socket(fileno=3)"}
    ),
    Attacks(
        "sockets",
        "script_error",
        {
            "name_of_an_address": "import ipaddress, socket\nsocket.gethostbyaddr('127.0.0.1')",
            "log_to_a_socket": """\
import logging.handlers
logging.handlers.SysLogHandler(address=('127.0.0.1', PORT))
""",
        },
    ),
    Attacks(
        "sockets",
        "script_error: urllib.error.URLError",
        {
            "http": """\
import urllib.parse, urllib.request
urllib.request.urlopen(f'http://127.0.0.1:{PORT}')
""",
            "file_by_url": """\
import urllib.parse, urllib.request
urllib.request.urlopen('file://' + FLAG).read()
""",
            "data_by_url": "import urllib.request\nurllib.request.urlopen(f'ftp://127.0.0.1:{PORT}/')",
            "proxy": """\
import os, urllib.request
os.environ.update(http_proxy=f'http://127.0.0.1:{PORT}')
urllib.request.urlopen('http://example.com')
""",
        },
    ),
    Attacks(
        "sockets",
        "script_error: OSError",
        {"asyncio_server": "await asyncio.start_server(print, '127.0.0.1', 0)"},
    ),
    Attacks(
        "processes",
        "script_error: AttributeError",
        {
            "fork": "import os\nos.fork()",
            "shell": "import os, shlex\nos.system('touch ' + FOLDER + '/made')",
            "replace_oneself": "import os\nos.execv('/bin/sh', ['sh'])",
            "spawn": "import os\nos.posix_spawn('/bin/sh', ['sh'], {})",
            "process_of_a_pool": "import multiprocessing\nmultiprocessing.Process(target=print).start()",
            "kill_the_portal": "import os, signal\nos.kill(PID, 9)",
            "kill_everything": "import os, signal\nos.kill(-1, 9)",
            "alarm": "import signal\nsignal.alarm(1)",
            "wait_for_a_process": "import os\nos.waitpid(-1, 0)",
            "become_another_user": "import os\nos.setuid(0)",
        },
    ),
    Attacks(
        "processes",
        "script_error: OSError: [Errno 58]",
        {
            "pipe_to_a_shell": "import os, shlex\nos.popen('id').read()",
            "run_in_a_shell": "import subprocess\nsubprocess.check_output('id', shell=True)",
        },
    ),
    Attacks(
        "processes",
        "script_error: NotImplementedError",
        {
            "executor_of_processes": """\
import concurrent.futures
concurrent.futures.ProcessPoolExecutor().submit(abs, -1).result()
""",
            "asyncio_shell": "await asyncio.create_subprocess_shell('id')",
            "asyncio_program": "await asyncio.create_subprocess_exec('id')",
        },
    ),
    Attacks(
        "processes",
        "script_error: ModuleNotFoundError",
        {"other_interpreters": "import concurrent.futures\n__import__('_interpreters').create()"},
    ),
    Attacks(
        "processes",
        "script_error: SystemError: the interpreter crashed",
        {
            "raise_a_signal": "import signal\nsignal.raise_signal(signal.SIGSEGV)",
            "abort": "import os\nos.abort()",
            "crash_on_purpose": "import faulthandler\nfaulthandler._sigsegv()",
        },
    ),
    Attacks(
        "processes",
        "script_exit",
        {"exit_at_once": "import os\nos._exit(7)", "breakpoint": "import sys\nbreakpoint()"},
    ),
    Attacks("processes", VALUE, {"exit_cleanly": ("import os\nos._exit(0)", None)}),
    Attacks(
        "processes",
        "script_error: RuntimeError: can't start new thread",
        {
            "thread": "import threading\nthreading.Thread(target=print).start()",
            "raw_thread": "import _thread\n_thread.start_new_thread(print, ())",
        },
    ),
    Attacks("processes", "script_error", {"attach_a_debugger": "import sys\nsys.remote_exec(PID, FLAG)"}),
    Attacks(
        "native modules",
        "script_error: ModuleNotFoundError",
        {
            "ctypes": "import ctypes",
            "mmap": "import mmap",
            "_posixshmem": "import _posixshmem",
            "multiprocessing.shared_memory": "import multiprocessing.shared_memory",
            "fcntl": "import fcntl",
            "_testinternalcapi": "import _testinternalcapi",
            "_remote_debugging": "import _remote_debugging",
        },
    ),
    Attacks(
        "native modules",
        "script_error: ImportError: library not found",
        {
            "extension_by_loader": """\
import _imp, importlib.machinery as machinery
def spec(name):
    return machinery.ModuleSpec(name, None, origin=FLAG)
machinery.ExtensionFileLoader('x', FLAG).create_module(spec('x'))
""",
            "extension_by_spec": """\
import _imp, importlib.machinery as machinery
def spec(name):
    return machinery.ModuleSpec(name, None, origin=FLAG)
_imp.create_dynamic(spec('x'))
""",
        },
    ),
    Attacks(
        "native modules",
        VALUE,
        {
            "hidden_builtin": (
                """\
import _imp, importlib.machinery as machinery
def spec(name):
    return machinery.ModuleSpec(name, None, origin=FLAG)
_imp.create_builtin(spec('_ctypes'))
""",
                None,
            ),
            "flags_of_the_loader": ("import sys\nsys.setdlopenflags(2)", None),
        },
    ),
    Attacks(
        "native modules",
        "script_error: AttributeError",
        {
            "extension_of_the_database": """\
import sqlite3
database = sqlite3.connect(':memory:')
database.enable_load_extension(True)
"""
        },
    ),
    Attacks(
        "native modules",
        "script_error: sqlite3.OperationalError: no such function",
        {
            "load_into_the_database": """\
import sqlite3
database = sqlite3.connect(':memory:')
database.execute('select load_extension(?)', (FLAG,))
""",
            "file_through_the_database": """\
import sqlite3
database = sqlite3.connect(':memory:')
database.execute('select readfile(?)', (FLAG,))
""",
        },
    ),
    Attacks(
        "native modules",
        "script_error: sqlite3.OperationalError",
        {
            "folder_of_the_database": """\
import sqlite3
database = sqlite3.connect(':memory:')
database.execute('pragma temp_store_directory = "/tmp"')
"""
        },
    ),
    Attacks(
        "native modules",
        "script_error: sqlite3.DatabaseError",
        {
            "schema_of_the_database": """\
import sqlite3
database = sqlite3.connect(':memory:')
SCHEMA = '''
pragma writable_schema = on;
insert into sqlite_master values ("table", "a", "a", 999999, "create table a(b)");
pragma writable_schema = reset;
select * from a
'''
database.executescript(SCHEMA)
""",
            "damaged_database": """\
import sqlite3
database = sqlite3.connect(':memory:')
damaged = b'SQLite format 3\\0' + bytes(range(256)) * 64
database.deserialize(damaged)
database.execute('select * from sqlite_master').fetchall()
""",
        },
    ),
    Attacks(
        "native modules", "script_error", {"trampoline": "import sys\nsys.activate_stack_trampoline('perf')"}
    ),
    Attacks(
        "native modules",
        "script_error: TypeError",
        {"machine_code_in_memory": "memoryview(b'\\x0f\\x05').cast('B').toreadonly()()"},
    ),
    Attacks(
        "import machinery",
        "script_error: ModuleNotFoundError",
        {
            "own_portal": "import portal.server",
            "own_manifests": "import manifests.portal_manifest",
            "own_upstreams": "import upstreams",
            "own_engine": "import wasmtime",
            "own_runtime": "import sandbox_runtime.guest.entry",
            "folder_of_the_host": "sys.path.insert(0, FOLDER)\nimport flag",
            "archive_as_a_folder": "sys.path.insert(0, FOLDER + '/x.zip')\nimport x",
            "installer": "import pip",
            "javascript": "import js",
            "other_sandbox": "import pyodide_js",
            "no_finders": "sys.meta_path.clear()\nimport turtle",
        },
        setup=IMPORTS,
    ),
    Attacks(
        "import machinery",
        "script_error: FileNotFoundError",
        {
            "file_as_a_module": "machinery.SourceFileLoader('flag', FLAG).load_module()",
            "file_as_a_spec": """\
import importlib.util
importlib.util.spec_from_file_location('flag', FLAG + '.py').loader.load_module()
""",
            "file_as_bytecode": "machinery.SourcelessFileLoader('flag', FLAG).get_code('flag')",
        },
        setup=IMPORTS,
    ),
    Attacks(
        "import machinery",
        "script_error",
        {
            "file_by_a_loader": "import json, sys\nsys.modules['json'].__loader__.get_data(FLAG)",
            "resources": """\
import importlib.resources
importlib.resources.files('json').joinpath('../../..' + FLAG).read_text()
""",
            "no_import_at_all": "import builtins\nbuiltins.__import__ = None\nimport json",
            "builtins_gone": "import builtins\nvars(builtins).clear()",
        },
    ),
    Attacks(
        "import machinery",
        VALUE,
        {
            "finder_for_a_folder": (
                "machinery.FileFinder(FOLDER, (machinery.SourceFileLoader, ['.txt'])).find_spec('flag')",
                None,
            ),
            "module_of_ones_own": ("sys.modules['git'] = sys\nimport git\ngit is sys", True),
        },
        setup=IMPORTS,
    ),
    Attacks(
        "import machinery",
        "script_error: zipimport.ZipImportError",
        {"archive": "import zipimport\nzipimport.zipimporter(FLAG)"},
    ),
    Attacks(
        "import machinery",
        "script_error: FileNotFoundError",
        {
            "script_by_path": "import runpy\nrunpy.run_path(FLAG)",
            "builtins_anew": "import builtins, importlib\nimportlib.reload(builtins)\nopen(FLAG)",
        },
    ),
    Attacks(
        "import machinery",
        "script_error: ModuleNotFoundError",
        {"site_packages": "import site\nsite.addsitedir(FOLDER)\nimport flag"},
    ),
    Attacks(
        "import machinery",
        VALUE,
        {
            "path_file": ("import site\nsite.addpackage(FOLDER, 'flag.txt', set())", None),
            "browser": ("import webbrowser\nwebbrowser.open('file://' + FLAG)", False),
            "system_anew": ("import importlib, os\nimportlib.reload(os)\ndict(os.environ)", {}),
        },
    ),
    Attacks(
        "import machinery",
        "script_error",
        {
            "installer_run": "__import__('ensurepip').bootstrap()",
            "relative_above_everything": "importlib.import_module('..portal', 'tools.git')",
            "no_modules": "sys.modules.clear()\nimport decimal",
        },
        setup=IMPORTS,
    ),
    Attacks(
        "import machinery",
        "script_error: ZeroDivisionError",
        {
            "lying_finder": """\
sys.meta_path.insert(0, type('F', (), {'find_spec': lambda *_: 1 / 0}))
import graphlib2
"""
        },
        setup=IMPORTS,
    ),
    Attacks(
        "gc and frames",
        VALUE,
        {
            "find_all_objects": ("len([o for o in gc.get_objects() if 'wasmtime' in type(o).__module__])", 0),
            "leave_the_last_frame": ("frame('execute').f_back.f_back is None", True),
            "hook_of_the_end": ("import atexit\natexit.register(lambda: 1 / 0)\n7", 7),
            "finalizer_at_the_end": ("class Late:\n    def __del__(self): sys.exit(9)\nkept = Late()\n7", 7),
            "unfreeze": ("gc.unfreeze()\ngc.collect() >= 0", True),
        },
        setup=OWN_FRAMES,
    ),
    Attacks(
        "gc and frames",
        "script_error: m",
        {
            "forge_the_error": "frame('execute').f_locals['header']['error'] = {'code': 'worker_lost', 'message': 'm'}"
        },
        setup=OWN_FRAMES,
    ),
    Attacks(
        "gc and frames",
        "script_error: the script failed",
        {"forge_a_refusal": "frame('execute').f_locals['header']['error'] = {'code': 'not_granted'}"},
        setup=OWN_FRAMES,
    ),
    Attacks(
        "gc and frames",
        "result_not_json",
        {
            "forge_the_value": """\
import json
dumps = json.dumps
json.dumps = lambda *a, **k: '{}\\n7\\n' + dumps(*a, **k)
"""
        },
        setup=OWN_FRAMES,
    ),
    Attacks(
        "gc and frames",
        "script_error: SystemError: the script broke the interpreter",
        {
            "forge_the_header": "import json\njson.dumps = lambda *a, **k: '[]'",
            "header_of_nothing": "import json\njson.dumps = lambda *a, **k: ''",
        },
        setup=OWN_FRAMES,
    ),
    Attacks(
        "gc and frames",
        "script_error",
        {
            "no_header_at_all": "import json\njson.dumps = None",
            "hook_of_audits": "sys.addaudithook(lambda *_: 1 / 0)\n7",
        },
        setup=OWN_FRAMES,
    ),
    Attacks(
        "gc and frames",
        "script_error: RuntimeError",
        {"clear_the_frame": "frame('execute').clear()"},
        setup=OWN_FRAMES,
    ),
    Attacks(
        "gc and frames",
        "script_error: ValueError",
        {"jump_in_the_frame": "frame('execute').f_lineno = 1"},
        setup=OWN_FRAMES,
    ),
    Attacks(
        "gc and frames",
        "script_error: ZeroDivisionError",
        {"hook_of_exceptions": "sys.excepthook = lambda *_: sys.exit(0)\n1 / 0"},
        setup=OWN_FRAMES,
    ),
    Attacks(
        "crafted bytecode",
        ANYTHING,
        {
            "constant_far_away": "crafted(('EXTENDED_ARG', 127), ('EXTENDED_ARG', 255), ('LOAD_CONST', 0), END)()",
            "variable_far_away": "crafted(('LOAD_FAST', 200), END)()",
            "empty_stack": "crafted(*[('POP_TOP', 0)] * 2000, END)()",
            "full_stack": "crafted(*[('LOAD_SMALL_INT', 1)] * 100_000, END)()",
            "no_such_step": "crafted((255, 0), END)()",
            "no_end": "crafted(('NOP', 0))()",
            "jump_out": "crafted(('EXTENDED_ARG', 127), ('EXTENDED_ARG', 255), ('JUMP_FORWARD', 255), END)()",
            "jump_back_before_the_start": "crafted(('EXTENDED_ARG', 10), ('JUMP_BACKWARD', 255), ('CACHE', 0), END)()",
            "call_of_nothing": "crafted(('CALL', 200), *[('CACHE', 0)] * 3, END)()",
            "reserved_step": "crafted(('RESERVED', 0), END)()",
            "interpreter_exit": "crafted(('LOAD_SMALL_INT', 1), ('INTERPRETER_EXIT', 0))()",
        },
        setup=BYTECODE,
    ),
    Attacks(
        "crafted bytecode",
        "script_error",
        {
            "forged_code_object": """\
def f(): return 1
type(f.__code__)(0, 0, 0, 2**31 - 1, 2**31 - 1, 0, b'', (), (), (), '', '', '', 0, b'', b'', (), ())
""",
            "marshalled_garbage": "import marshal\nmarshal.loads(b'c' + bytes(range(256)) * 9)",
        },
    ),
    Attacks(
        "crafted bytecode",
        ANYTHING,
        {
            "stack_of_two_billion": "def f(): return 1\nf.__code__ = f.__code__.replace(co_stacksize=2**29)\nf()"
        },
    ),
    Attacks(
        "crafted bytecode",
        "script_error: AttributeError",
        {"unpickled_code": "import pickle\npickle.loads(b\"cposix\\nsystem\\n(S'id'\\ntR.\")"},
    ),
    Attacks(
        "crafted bytecode",
        "script_error: SystemError: the interpreter crashed",
        {
            "read_past_the_end": "memory = all_memory()\nmemory[0x7ffffff0]",
            "read_all": "memory = all_memory()\nmemory.count(b'x' * 9)",
            "write_all": "memory = all_memory()\nfor i in range(1024, len(memory)): memory[i] = 255",
        },
        setup=ALL_MEMORY,
    ),
    Attacks(
        "crafted bytecode",
        ANYTHING,
        {
            "write_zeros": "memory = all_memory()\nmemory[1024:1 << 24] = bytes((1 << 24) - 1024)",
            "forget_the_types": "memory = all_memory()\nmemory[id(int) : id(int) + 400] = b'\\xff' * 400",
        },
        setup=ALL_MEMORY,
    ),
    Attacks(
        "crafted bytecode",
        "script_error",
        {
            "own_the_stack": """\
memory = all_memory()
memory[1024 : 1 << 20] = b'\\xff' * ((1 << 20) - 1024)
1 + 1
"""
        },
        setup=ALL_MEMORY,
    ),
    Attacks(
        "raw host interface",
        "worker_lost",
        {
            "no_arguments": "host.exchange('1 git.git_log', 1000)",
            "arguments_that_are_a_list": "host.exchange('1 git.git_log [1]', 1000)",
            "call_without_number": "host.exchange('git.git_log {}', 1000)",
            "negative_number": "host.exchange('-1 git.git_log {}', 1000)",
            "huge_number": "host.exchange('9' * 4000 + ' git.git_log {}', 1000)",
            "number_of_another_script": "host.exchange('²  git.git_log {}', 1000)",
            "number_zero": "host.exchange('0 git.git_log {}', 1000)",
            "number_twice": "host.exchange('1 git.git_log {}\\n1 git.git_log {}', 1000)",
            "empty_lines": "host.exchange('\\n\\n', 1000)",
            "only_nul": "host.exchange('\\0', 1000)",
            "longest_name": "host.exchange('1 ' + 'a' * 2049 + ' {}', 1000)",
            "cancel_what_never_was": "host.exchange('7', 1000)",
            "cancel_twice": "host.exchange('1 git.hangs {}', 0)\nhost.exchange('1\\n1', 0)",
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "raw host interface",
        VALUE,
        {
            "arguments_that_are_no_json": (
                "'argument_error' in host.exchange('1 git.git_log nonsense', 1000)",
                True,
            ),
            "arguments_of_a_thousand_levels": (
                "'argument_error' in host.exchange('1 git.git_log {\"a\":' + '[' * 999 + ']' * 999 + '}', 1000)",
                True,
            ),
            "arguments_of_nan": (
                "host.exchange('1 git.git_log {\"a\": NaN}', 1000)",
                '[[1,1,{"a":null},[],[]]]',
            ),
            "arguments_of_infinity": (
                "host.exchange('1 git.git_log {\"a\": 1e999}', 1000)",
                '[[1,1,{"a":null},[],[]]]',
            ),
            "arguments_twice_the_same_key": (
                'host.exchange(\'1 git.git_log {"a": 0, "a": 1}\', 1000)',
                '[[1,1,{"a":1},[],[]]]',
            ),
            "arguments_with_nul": (
                "host.exchange('1 git.git_log {\"a\": \"\\0\"}', 1000).count('argument_error')",
                1,
            ),
            "claim_a_size": ("'argument_limit' in host.exchange('1 git.git_log !5', 1000)", True),
            "claim_an_absurd_size": (
                "'argument_limit' in host.exchange('1 git.git_log !' + '9' * 20, 1000)",
                True,
            ),
            "claim_no_size": ("'argument_limit' in host.exchange('1 git.git_log !x', 1000)", True),
            "block_that_is_no_json": ("host.emit('{')", None),
            "block_that_is_no_object": ("host.emit('[1]')", None),
            "block_of_no_type": ("host.emit('{\"type\": 1}')", None),
            "block_of_nothing": ("host.emit('')", None),
            "print_nothing": ("host.print('')", None),
            "print_nul_and_escapes": ("host.print('\\0\\x1b[2J')", None),
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "raw host interface",
        "script_error: SystemError: the interpreter crashed",
        {
            "import_by_number": "import componentize_py_runtime as runtime\nruntime.call_import(3, [])",
            "import_without_arguments": "import componentize_py_runtime as runtime\nruntime.call_import(0, [])",
            "drop_a_resource_that_is_none": "import componentize_py_runtime as runtime\nruntime.drop_resource(0, 1)",
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "raw host interface",
        "script_error: OverflowError",
        {
            "import_by_a_negative_number": "import componentize_py_runtime as runtime\nruntime.call_import(-1, [])"
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "wrong wit values",
        "script_error: SystemError: the interpreter crashed",
        {
            "number_for_text": "host.exchange(1, 0)",
            "bytes_for_text": "host.print(b'x')",
            "none_for_number": "host.exchange('', None)",
            "fraction_for_number": "host.exchange('', 1.5)",
            "number_too_large": "host.exchange('', 2**63)",
            "number_of_a_thousand_digits": "host.exchange('', 10**1000)",
            "lone_surrogate_in_a_call": 'host.exchange(\'1 git.git_log {"a": "\\udfff"}\', 0)',
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "wrong wit values",
        VALUE,
        {
            "true_for_number": ("host.exchange('', True)", ""),
            "class_like_text": (
                """\
class Text(str):
    def __str__(self): raise SystemExit
host.print(Text('x'))
""",
                None,
            ),
            "class_like_number": (
                """\
class Number(int):
    def __index__(self): raise SystemExit
host.exchange('', Number(0))
""",
                "",
            ),
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "wrong wit values",
        "script_error: TypeError",
        {
            "too_few": "host.exchange('')",
            "module_replaced": """\
import sys
sys.modules['componentize_py_runtime'].call_import = None
host.print('x')
""",
        },
        setup=RAW_HOST,
    ),
    Attacks(
        "re entry",
        VALUE,
        {"call_within_a_call": ("host.exchange('', Number(lambda: host.print('inner') or 0))", "")},
        setup=NUMBER,
    ),
    Attacks(
        "re entry",
        "script_error",
        {
            "calls_without_end_within_a_call": "def deeper(): return host.exchange('', Number(deeper))\ndeeper()",
            "loop_within_the_loop": """\
asyncio.get_event_loop().run_until_complete(asyncio.sleep(0))
await asyncio.sleep(0)
""",
        },
        setup=NUMBER,
    ),
    Attacks(
        "re entry",
        "script_error: SystemError: the interpreter crashed",
        {
            "failure_within_a_call": "host.exchange('', Number(lambda: 1 / 0))",
            "exit_within_a_call": "host.exchange('', Number(lambda: sys.exit(0)))",
        },
        setup=NUMBER,
    ),
    Attacks(
        "re entry",
        "worker_lost",
        {
            "flood_within_a_call": """\
host.exchange('1 git.git_log {}', Number(lambda: len(host.exchange('2 git.git_log {}', 0)) * 0))
host.exchange('', 1000)
"""
        },
        setup=NUMBER,
    ),
    Attacks(
        "re entry",
        "script_error: RuntimeError",
        {
            "close_the_loop": "asyncio.get_running_loop().close()\nawait asyncio.sleep(0)",
            "stop_the_loop": "asyncio.get_running_loop().stop()\nawait asyncio.sleep(0)",
        },
        setup=NUMBER,
    ),
    Attacks(
        "re entry",
        VALUE,
        {"loop_of_ones_own": ("async def main(): return await asyncio.sleep(0, 4)\nasyncio.run(main())", 4)},
    ),
    Attacks(
        "surrogates",
        VALUE,
        {
            "value": ("'a\\udfffb'", "a�b"),
            "key": ("{'\\ud800': 1}", {"�": 1}),
            "deep_inside": ("[[{'a': ['\\udc00']}]]", [[{"a": ["�"]}]]),
            "two_halves": ("'\\ud83d\\ude00'", "��"),
            "escape_that_is_text": ("'\\\\ud800'", "\\ud800"),
            "printed": ("print('\\ud800')", None),
            "argument": ("await git.git_log(a='\\ud800')", {"a": "�"}),
            "name_of_an_argument": ("await git.git_log(**{'\\ud800': 1})", {"�": 1}),
            "block": ("portal.emit({'type': '\\ud800', '\\udc00': '\\ud800'})", None),
        },
    ),
    Attacks("surrogates", "script_error: ValueError: �", {"error": "raise ValueError('\\ud800')"}),
    Attacks(
        "surrogates",
        "script_error: �",
        {"error_of_a_tool": "raise ToolError('\\ud800', code='\\ud800', hint='\\ud800')"},
    ),
    Attacks("surrogates", "script_exit: �", {"exit": "import sys\nsys.exit('\\ud800')"}),
    Attacks(
        "surrogates",
        "script_error: SystemError: the interpreter crashed",
        {"raw_print": "host.print('\\ud800')", "raw_block": "host.emit('\\ud800')"},
        setup=RAW_HOST,
    ),
    Attacks(
        "surrogates",
        VALUE,
        {
            "raw_escaped_block": ('host.emit(\'{"type": "\\\\ud800"}\')', None),
            "raw_escaped_argument": (
                'host.exchange(\'1 git.git_log {"a": "\\\\udc00"}\', 1000)',
                '[[1,1,{"a":"�"},[],[]]]',
            ),
            "raw_pair": (
                'host.exchange(\'1 git.git_log {"a": "\\\\ud83d\\\\ude00"}\', 1000)',
                '[[1,1,{"a":"😀"},[],[]]]',
            ),
        },
        setup=RAW_HOST,
    ),
]


@pytest.fixture(scope="module")
async def portal(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Arena]:
    limits = {"wall_seconds": 20, "cpu_seconds": 3}
    async with arena(tmp_path_factory.mktemp("escapes"), limits) as portal:
        yield portal


@pytest.mark.parametrize("attack", each(ATTACKS))
async def test_nothing_gets_out_and_nothing_outside_breaks(portal: Arena, attack: Attack) -> None:
    await portal.withstands(attack)
