"""No process is started, signalled or ended but the script's own."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, breaks, raises, yields

pytestmark = pytest.mark.anyio

ABSENT = raises("AttributeError")
NO_THREAD = raises("RuntimeError: can't start new thread")
NO_MODULE = raises("ModuleNotFoundError")
NO_PROCESS = raises("OSError: [Errno 58]")

ATTACKS = [
    Attack("fork", "os.fork()", ABSENT, "os.getpid()", 42, "import os"),
    Attack(
        "shell",
        "os.system('touch ' + FOLDER + '/made')",
        ABSENT,
        "shlex.quote('a b')",
        "'a b'",
        "import os, shlex",
    ),
    Attack(
        "pipe_to_a_shell",
        "os.popen('id').read()",
        NO_PROCESS,
        "shlex.split('a b')",
        ["a", "b"],
        "import os, shlex",
    ),
    Attack(
        "run",
        "subprocess.run(['id'])",
        NO_PROCESS,
        "subprocess.list2cmdline(['a', 'b'])",
        "a b",
        "import subprocess",
    ),
    Attack(
        "run_in_a_shell",
        "subprocess.check_output('id', shell=True)",
        NO_PROCESS,
        "subprocess.PIPE",
        -1,
        "import subprocess",
    ),
    Attack(
        "replace_oneself", "os.execv('/bin/sh', ['sh'])", ABSENT, "os.defpath", "/bin:/usr/bin", "import os"
    ),
    Attack("spawn", "os.posix_spawn('/bin/sh', ['sh'], {})", ABSENT, "os.F_OK", 0, "import os"),
    Attack("spawn_by_mode", "os.spawnl(0, '/bin/sh', 'sh')", ABSENT, "os.W_OK", 2, "import os"),
    Attack(
        "terminal_process", "__import__('pty').spawn('sh')", NO_MODULE, "__import__('tty') if 0 else 1", 1
    ),
    Attack(
        "process_of_a_pool",
        "multiprocessing.Process(target=print).start()",
        ABSENT,
        "multiprocessing.current_process().name",
        "MainProcess",
        "import multiprocessing",
    ),
    Attack(
        "executor_of_processes",
        "concurrent.futures.ProcessPoolExecutor().submit(abs, -1).result()",
        raises("NotImplementedError"),
        "concurrent.futures.ThreadPoolExecutor().submit(abs, -1).result()",
        1,
        "import concurrent.futures",
    ),
    Attack(
        "other_interpreters",
        "__import__('_interpreters').create()",
        NO_MODULE,
        "list(concurrent.futures.ThreadPoolExecutor().map(abs, [-1]))",
        [1],
        "import concurrent.futures",
    ),
    Attack(
        "asyncio_shell",
        "await asyncio.create_subprocess_shell('id')",
        raises("NotImplementedError"),
        "asyncio.subprocess.PIPE",
        -1,
    ),
    Attack(
        "asyncio_program",
        "await asyncio.create_subprocess_exec('id')",
        raises("NotImplementedError"),
        "asyncio.subprocess.DEVNULL",
        -3,
    ),
    Attack("kill_the_portal", "os.kill(PID, 9)", ABSENT, "int(signal.SIGTERM)", 15, "import os, signal"),
    Attack(
        "kill_everything", "os.kill(-1, 9)", ABSENT, "signal.Signals(9).name", "SIGKILL", "import os, signal"
    ),
    Attack("kill_a_group", "os.killpg(0, 9)", ABSENT, "int(signal.SIGINT)", 2, "import os, signal"),
    Attack("alarm", "signal.alarm(1)", ABSENT, "signal.SIG_DFL == 0", True, "import signal"),
    Attack(
        "raise_a_signal",
        "signal.raise_signal(signal.SIGSEGV)",
        breaks(),
        "signal.strsignal(11)",
        "Segmentation fault",
        "import signal",
    ),
    Attack("abort", "os.abort()", breaks(), "os.strerror(2)", "Permission denied", "import os"),
    Attack("exit_at_once", "os._exit(7)", Fate("script_exit"), "os.EX_OK", 0, "import os"),
    Attack("exit_cleanly", "os._exit(0)", yields(None), "os.EX_USAGE", 64, "import os"),
    Attack(
        "exit_in_a_task",
        "await asyncio.gather(asyncio.sleep(1), leave())",
        Fate("script_exit"),
        "asyncio.iscoroutinefunction(leave)",
        True,
        "import os\nasync def leave():\n    os._exit(3)",
    ),
    Attack(
        "wait_for_a_process",
        "os.waitpid(-1, 0)",
        ABSENT,
        "len(os.times()) - 4",
        1,
        "import os",
    ),
    Attack("become_another_user", "os.setuid(0)", ABSENT, "os.name", "posix", "import os"),
    Attack(
        "raise_limits", "__import__('resource')", NO_MODULE, "sys.getrecursionlimit() > 0", True, "import sys"
    ),
    Attack(
        "thread",
        "threading.Thread(target=print).start()",
        NO_THREAD,
        "threading.current_thread().name",
        "MainThread",
        "import threading",
    ),
    Attack(
        "raw_thread",
        "_thread.start_new_thread(print, ())",
        NO_THREAD,
        "_thread.get_ident() is not None",
        True,
        "import _thread",
    ),
    Attack(
        "timer_thread",
        "threading.Timer(0, print).start()",
        NO_THREAD,
        "threading.active_count()",
        1,
        "import threading",
    ),
    Attack("breakpoint", "breakpoint()", Fate("script_exit"), "sys.gettrace() is None", True, "import sys"),
    Attack(
        "crash_on_purpose",
        "faulthandler._sigsegv()",
        breaks(),
        "faulthandler.is_enabled()",
        False,
        "import faulthandler",
    ),
    Attack(
        "attach_a_debugger",
        "sys.remote_exec(PID, FLAG)",
        Fate("script_error"),
        "sys.is_remote_debug_enabled()",
        False,
        "import sys",
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_no_other_process_is_made_or_touched(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_what_needs_no_process_works(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)
