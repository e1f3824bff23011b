"""A search finds functions by purpose, by name and in the words of other servers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.catalog.search.index import SearchIndex
from portal.catalog.search.query import terms_of


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


INDEX = built(ALL)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("send-message", SEND),
        ("mail.send_message", SEND),
        ("`mail.send_message()`", SEND),
        ('await mail.send_message(to="Ann")', SEND),
        ("mergepullrequest", MERGE),
    ],
)
def test_exact_name_ranks_first_and_says_so(query: str, expected: Function) -> None:
    hits = INDEX.search(query, 5)
    assert hits.functions[0] is expected
    assert hits.exact == 1


def test_exact_name_ranks_before_a_function_that_repeats_it() -> None:
    spam = Function("spam", "aaa", "create_issue " * 500)
    hits = built([*ALL, spam]).search("create_issue", 5)
    assert hits.functions[:2] == (ISSUE, spam)


def test_upstream_narrows_the_search_and_an_empty_query_lists_it() -> None:
    hits = INDEX.search("search", 5, upstream="mail")
    assert (hits.functions, hits.total) == ((SEARCH_MAIL,), 1)
    assert INDEX.search(" ", 5, upstream="mail").functions == (SEARCH_MAIL, SEND)
    assert INDEX.search(" ", 5).functions == ()


def test_a_whole_task_finds_functions_for_each_step() -> None:
    task = "Read the log file. Open an issue in the repository, then send an e-mail to the recipient."
    assert {READ, ISSUE, SEND} <= set(INDEX.search(task, 5).functions)


def test_each_step_of_a_task_has_its_share_of_the_first_places() -> None:
    others = [
        Function("tracker", f"{verb}_billing_issue", f"{verb} billing issues that are open or overdue.")
        for verb in ("count", "tag", "sort", "plot", "rank", "pin")
    ]
    index = built([*ALL, *others])
    task = "find all open or overdue billing issues and mail their owners"
    assert SEND in index.search(task, 5).functions
    assert SEND in index.search(task, 3).functions
    assert len(set(index.search(task, 9).functions)) == 9


def test_ties_are_in_order_of_qualified_name_whatever_the_order_of_building() -> None:
    twins = [Function(f"u{number}", "same", "same words") for number in range(8)]
    shuffled = Random(4).sample(twins, len(twins))
    assert list(built(shuffled).search("words", 8).functions) == twins


def test_an_updated_index_finds_what_one_built_anew_finds() -> None:
    changed = [each for each in ALL if each.upstream != "mail"] + [
        replace(SEND, description="Post a letter.")
    ]
    updated, anew = INDEX.updated(by_namespace(changed)), built(changed)
    for query in ("letter", "issue", "find files", "send e-mail", "mail.search", ""):
        assert updated.search(query, 9) == anew.search(query, 9)
        assert updated.search(query, 9, "mail") == anew.search(query, 9, "mail")
    assert updated.search("letter", 1).functions[0].description == "Post a letter."
    assert INDEX.search("letter", 1).total == 0


def test_function_without_searchable_words_is_still_found_by_name() -> None:
    odd = Function("x", "??")
    assert built([odd, ISSUE]).search("??", 5).functions == (odd,)


def test_hostile_definition_does_not_crowd_out_the_others() -> None:
    words = "issue repository mail file weather search "
    hostile = Function(
        "evil", "evil", words * 20_000, tuple(Parameter(words * 50, words * 500) for _ in range(500))
    )
    index = built([*ALL, hostile])
    assert index.search("open an issue", 1).functions == (ISSUE,)
    assert index.search("weather forecast", 1).functions == (WEATHER,)


@given(st.text(max_size=300), st.text(max_size=100))
def test_any_text_can_be_indexed_and_asked(text: str, query: str) -> None:
    function = Function(text[:20], text[20:40], text, (Parameter(text[:9], text),))
    hits = built([function, ISSUE]).search(query, 5)
    assert hits.total >= len(hits.functions)


def tools(*names: str) -> list[Function]:
    return [Function("home", name, f"{name.replace('_', ' ').capitalize()}.") for name in names]


HOME = built(
    [
        *tools("turn_off_light", "turn_on_light", "scale_down", "scale_up", "check_in", "check_out"),
        *tools("create_post", "delete_post", "get_post", "like_post", "share_post", "show_posts"),
        *tools("get_in_holidays", "get_it_holidays", "get_uk_holidays", "get_us_holidays"),
        *tools("celsius_to_fahrenheit", "fahrenheit_to_celsius", "get_post_by_id"),
    ]
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("switch the light on", "turn_on_light"),
        ("switch the light off", "turn_off_light"),
        ("scale the deployment down", "scale_down"),
        ("check out", "check_out"),
        ("I would like to share a post", "share_post"),
        ("IT holidays", "get_it_holidays"),
        ("5 degrees fahrenheit to celsius", "fahrenheit_to_celsius"),
        ("get a post by its id", "get_post_by_id"),
    ],
)
def test_small_words_of_a_name_tell_it_from_its_opposite(query: str, expected: str) -> None:
    assert HOME.search(query, 3).functions[0].name == expected
    assert HOME.search("bake bread in, on or by", 3).total == 0  # small words alone find nothing


@pytest.mark.parametrize("query", ["get the tables", "table get"])
def test_a_name_that_says_what_was_asked_and_no_more_comes_first(query: str) -> None:
    wordy = [
        Function("store", f"get_table_{word}", f"Get the table. Table of {word}, table by table.")
        for word in ("rows", "columns", "keys")
    ]
    plain = Function(
        "store", "getTable", "Answers with rows and columns and keys, and much else that is told at length."
    )
    assert built([*wordy, plain]).search(query, 4).functions[0] is plain


def workspace_tool(upstream: str, tool: str) -> Function:
    return Function(upstream, tool, f"{tool.replace('_', ' ').capitalize()} of the workspace.")


VERBS = ("list", "search", "get", "create", "update", "delete")
TRACKER = {verb: workspace_tool("tracker", f"{verb}_issue") for verb in VERBS}
PULLS = {verb: workspace_tool("forge", f"{verb}_pull_request") for verb in VERBS}
FOLDERS = {verb: workspace_tool("drive", f"{verb}_folder") for verb in VERBS}
ROLES = built([*TRACKER.values(), *PULLS.values(), *FOLDERS.values()])


@pytest.mark.parametrize(
    ("index", "query", "expected"),
    [
        (INDEX, "open an issue", ISSUE),
        (INDEX, "recipient", SEND),
        (INDEX, "will it be raining? hourly precipitation", WEATHER),
        (INDEX, "max lines", READ),
        (INDEX, "app config", APP_CONFIG),
        (INDEX, "list the repo's issues", ISSUES),
        (INDEX, 'await github.createIssue({title: "Crash"})', ISSUE),
        (ROLES, "remove ticket", TRACKER["delete"]),
        (ROLES, "edit the ticket", TRACKER["update"]),
        (ROLES, "lookup a bug", TRACKER["search"]),
        (ROLES, "fetch a pull request", PULLS["get"]),
        (ROLES, "enumerate pull requests", PULLS["list"]),
        (ROLES, "erase directories", FOLDERS["delete"]),
    ],
)
def test_function_is_found_by_what_it_does_also_in_other_words(
    index: SearchIndex, query: str, expected: Function
) -> None:
    assert index.search(query, 3).functions[0] is expected


def test_the_word_that_was_asked_for_comes_before_another_one() -> None:
    remove = workspace_tool("tracker", "remove_issue")
    index = built([*TRACKER.values(), remove])
    assert index.search("remove issue", 2).functions == (remove, TRACKER["delete"])


def test_a_word_that_many_names_have_comes_before_a_rare_one_that_may_stand_for_it() -> None:
    many = [
        Function("store", f"get_{word}", "")
        for word in ["alpha", "beta", "gamma", "delta", "omega", "sigma", "kappa"]
    ]
    get, describe = Function("store", "get_table", ""), Function("store", "describe_table", "")
    index = built([*many, describe, get])
    assert index.search("get the table", 2).functions == (get, describe)


GITLAB = [
    Function("gitlab", name, text, (Parameter("file_path", "Path of the file in the repository"),))
    for name, text in {
        "create_or_update_file": "Create or update a file in a repository",
        "push_files": "Push files to a repository in one commit, each file with its content",
        "search_repositories": "Search repositories",
        "create_repository": "Create a repository, with a read-me file",
        "fork_repository": "Fork a repository",
        "get_file_contents": "Get the contents of a file or directory",
    }.items()
]
HUBSPOT = [
    Function("hubspot", f"hubspot-{name}", text, (Parameter("objectType", "The type: contacts, deals"),))
    for name, text in {
        "list-objects": "Retrieve objects of a type",
        "batch-create-objects": "Create objects of one type",
        "batch-create-associations": "Create associations between objects. Look up the types before creating them.",
        "create-property": "Create a property. Before creating one, look whether it exists: a created one stays.",
        "create-engagement": "Create a note or a task with a contact or a deal",
        "get-association-definitions": "Get the types of associations, before creating some",
        "update-property": "Update a property",
    }.items()
]


@pytest.mark.parametrize(
    ("library", "query", "expected"),
    [
        (GITLAB, "read file in repository", "get_file_contents"),
        (HUBSPOT, "create a deal", "hubspot-batch-create-objects"),
        ([Function("calculator", "calculate", "Evaluate an expression.")], "compute a sum", "calculate"),
    ],
)
def test_the_tool_is_among_the_first_three(library: Sequence[Function], query: str, expected: str) -> None:
    assert expected in [each.tool for each in built(library).search(query, 3).functions]


@pytest.mark.parametrize(
    ("query", "text"),
    [("이슈 생성", "이슈를 생성합니다"), ("画", "画图工具"), ("查", "查询订单列表")],
)
def test_words_are_found_that_have_particles_or_one_character(query: str, text: str) -> None:
    own = Function("own", "run", text)
    assert own in built([*ALL, own]).search(query, 5).functions


def test_a_deprecated_function_comes_last_unless_it_is_named() -> None:
    old = Function("files", "read_file", "Read a file.", is_deprecated=True)
    index = built([old, Function("files", "read_text_file", "Read a file as text."), *GITLAB])
    assert index.search("read a file", 20).functions[-1] is old
    assert index.search("files.read_file", 1).functions == (old,)


@pytest.mark.parametrize("spelling", ["create-issue", "CreateIssue", "CREATE_ISSUE", "creating issues"])
def test_spellings_of_one_identifier_share_their_terms(spelling: str) -> None:
    assert set(terms_of("create issue", 100)) <= set(terms_of(spelling, 100))


def test_terms_are_words_without_case_accents_or_small_words() -> None:
    assert terms_of("parseHTTPRequest", 100)[:3] == terms_of("parse http request", 100)
    assert terms_of("Übergröße café", 100) == terms_of("ubergrosse CAFE", 100)
    assert terms_of("What's the file I don't have?", 100) == terms_of("file", 100)
    assert terms_of("搜索文件", 100) == ["搜索", "索文", "文件"]  # a script without spaces becomes pairs


@given(st.text(max_size=200))
def test_any_text_has_terms_without_spaces_or_case(text: str) -> None:
    for term in terms_of(text, 100):
        assert term == "".join(term.split())
        assert term == term.casefold()
