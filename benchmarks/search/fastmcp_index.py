"""Runs in FastMCP's environment: reads corpora and queries from stdin, writes what FastMCP's own index finds."""

import json
import sys
from types import SimpleNamespace

from fastmcp.server.transforms.search.base import _extract_searchable_text
from fastmcp.server.transforms.search.bm25 import _BM25Index

given = json.load(sys.stdin)
indexes = {}
for name, tools in given["corpora"].items():
    indexes[name] = _BM25Index()
    indexes[name].build([_extract_searchable_text(SimpleNamespace(**tool)) for tool in tools])
json.dump([indexes[corpus].query(query, limit) for corpus, query, limit in given["queries"]], sys.stdout)
