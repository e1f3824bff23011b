"""Passes stdin to a Unix socket, and what comes from there to stdout: `python -I -S stdio_relay.py SOCKET`.

A server in the process of a test is so an upstream over stdio, at the cost of an interpreter that imports nothing.
"""

import os
import select
import socket
import sys

far = socket.socket(socket.AF_UNIX)
far.connect(sys.argv[1])
ways = {0: far.fileno(), far.fileno(): 1}
while far.fileno() in ways:
    for near in select.select(list(ways), [], [])[0]:
        rest = os.read(near, 1 << 16)
        if not rest:
            del ways[near]
            if near == 0:
                far.shutdown(socket.SHUT_WR)
        while rest:
            rest = rest[os.write(ways[near], rest) :]
