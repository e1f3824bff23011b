"""Functions to search for: just what search reads of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from portal.catalog.search.index import SearchIndex


@dataclass(frozen=True)
class Parameter:
    wire_name: str
    doc: str = ""

    @property
    def name(self) -> str:
        return self.wire_name


@dataclass(frozen=True)
class Function:
    upstream: str
    tool: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    is_deprecated: bool = False

    @property
    def namespace(self) -> str:
        return self.upstream.replace("-", "_")

    @property
    def name(self) -> str:
        return self.tool.replace("-", "_")


ISSUE = Function("github", "create_issue", "Open a new issue in a GitHub repository.", (Parameter("title"),))
ISSUES = Function("github", "list_issues", "List issues of a repository, filtered by state or label.")
MERGE = Function("github", "mergePullRequest", "Merge a pull request.")
SEND = Function("mail", "send-message", "Send an e-mail.", (Parameter("to", "address of the recipient"),))
SEARCH_MAIL = Function("mail", "search", "Find messages in a mailbox.")
SEARCH_FILES = Function("files", "search", "Find files whose text matches a pattern.")
READ = Function("files", "read_file", "Read a text file.", (Parameter("path"), Parameter("maxLines")))
WEATHER = Function("open-meteo", "forecast", "Weather forecast: temperature and precipitation by hour.")
APP_CONFIG = Function("azure", "appconfig_kv_get", "Get a key-value of a store.")
ALL = (ISSUE, ISSUES, MERGE, SEND, SEARCH_MAIL, SEARCH_FILES, READ, WEATHER, APP_CONFIG)


def by_namespace(functions: Iterable[Function]) -> Mapping[str, Sequence[Function]]:
    namespaces: defaultdict[str, list[Function]] = defaultdict(list)
    for each in functions:
        namespaces[each.namespace].append(each)
    return namespaces


def built(functions: Iterable[Function]) -> SearchIndex:
    return SearchIndex({}, {}).updated(by_namespace(functions))
