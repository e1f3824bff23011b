"""OpenTelemetry's receiver for tests, in an environment of its own: prints each request as a line of JSON."""

import json
import logging
import socket
import sys
import time

from google.protobuf.json_format import MessageToDict
from oteltest.sink import HttpSink
from oteltest.sink.handler import RequestHandler


class Printer(RequestHandler):
    def handle_trace(self, request, headers):
        print(json.dumps(MessageToDict(request)), flush=True)

    handle_metrics = handle_logs = handle_trace


port = int(sys.argv[1])
HttpSink(Printer(), logging.getLogger(), port=port).start()
while socket.socket().connect_ex(("127.0.0.1", port)):
    time.sleep(0.05)
print("ready", flush=True)
time.sleep(600)
