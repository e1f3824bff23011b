"""Stands for a command that another process runs: `python -I -S command_relay.py SOCKET ARGUMENT...`.

It lends its arguments, environment, folder and streams to whoever listens there, passes signals on, and ends as it is
told.
"""

import json
import os
import signal
import socket
import sys

far = socket.socket(socket.AF_UNIX)
far.connect(sys.argv[1])
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, lambda number, _: far.send(bytes([number])))
wanted = {"arguments": sys.argv[2:], "environ": dict(os.environ), "folder": os.getcwd()}
data = json.dumps(wanted).encode() + b"\n"
far.sendall(data[socket.send_fds(far, [data], [0, 1, 2]) :])
for each in (0, 1, 2):
    os.close(each)
status = int(far.makefile().readline() or 70)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
