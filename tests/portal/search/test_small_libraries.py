"""In a library of one or a few servers, a word that nearly all functions have still finds those named by it."""

from collections.abc import Sequence

import pytest

from tests.portal.search.catalogue import Function, Parameter, built

DEVICE = Parameter(
    "device", "The device to use. Call mobile_list_available_devices to find the devices that are available."
)
MOBILE = [
    Function("mobile", f"mobile_{name}", text, () if name.endswith("devices") else (DEVICE,))
    for name, text in {
        "list_available_devices": "List all that are available: simulators and physical ones, iOS and Android.",
        "list_remote_devices": "List what the remote fleet has",
        "list_apps": "List all apps on the device",
        "launch_app": "Launch an app on the device; find its name with list_apps",
        "terminate_app": "Stop an app on the device",
        "get_screen_size": "Get the size of the device's screen in pixels",
        "click_on_screen_at_coordinates": "Click on the screen at x and y, as list_elements_on_screen tells them",
        "list_elements_on_screen": "List the elements on the screen of the device, with their coordinates",
        "press_button": "Press a button of the device, like BACK",
        "swipe_on_screen": "Swipe on the screen",
        "take_screenshot": "Take a screenshot of the device, to see what is on the screen",
        "list_crashes": "List crashes",
        "batch_commands": "Run a list of commands on the device, such as a list of clicks",
    }.items()
]
ISSUE = (Parameter("issueId", "The issue's ID"), Parameter("issueUrl", "The URL of the issue"))
SENTRY = [
    Function("sentry", name, text, ISSUE if "issue" in name else ())
    for name, text in {
        "find_organizations": "Find organizations. Use this tool to find an organization's slug.",
        "find_projects": "Find projects. Use this tool to find the slug of a project.",
        "get_issue_details": "Get the details of an issue by its ID. To find or list issues, use search_issues.",
        "get_issue_tag_values": "Find how an issue is distributed over tag values. Find which users an issue affects.",
        "update_issue": "Update an issue: resolve an issue, assign or reopen issues, find out who has it.",
        "search_events": "Search events and count them: errors of the last hour, how many issues.",
        "search_issues": "Search for problems in natural language. Answers a list with title, status, level, users, "
        "not counts or aggregations, for which there is search_events. Use it for lists like unresolved ones, critical "
        "bugs or errors that many users see; not for one that is known by its ID, nor for what happened within it.",
        "search_issue_events": "Search the events of one issue. To search all issues, use search_issues.",
        "analyze_issue_with_seer": "Analyze an issue: find its root cause, and how the issue is fixed.",
    }.items()
]
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
CALCULATOR = [Function("calculator", "calculate", "Evaluate an expression.")]


@pytest.mark.parametrize(
    ("library", "query", "expected"),
    [
        (MOBILE, "list devices", "mobile_list_available_devices"),
        (MOBILE, "tap on the screen", "mobile_click_on_screen_at_coordinates"),
        (SENTRY, "find issues", "search_issues"),
        (SENTRY, "search issues", "search_issues"),
        (SENTRY, "list unresolved issues", "search_issues"),
        (GITLAB, "read file in repository", "get_file_contents"),
        (HUBSPOT, "create a deal", "hubspot-batch-create-objects"),
        (CALCULATOR, "compute a sum", "calculate"),
    ],
)
def test_the_tool_is_among_the_first_three(library: Sequence[Function], query: str, expected: str) -> None:
    assert expected in [each.tool for each in built(library).search(query, 3).functions]


def test_tools_with_both_words_in_their_names_come_first() -> None:
    found = built(MOBILE).search("list devices", 2).functions
    assert {each.tool for each in found} == {"mobile_list_available_devices", "mobile_list_remote_devices"}


def test_a_deprecated_function_comes_last_unless_it_is_named() -> None:
    old = Function("files", "read_file", "Read a file.", is_deprecated=True)
    index = built([old, Function("files", "read_text_file", "Read a file as text."), *GITLAB])
    assert index.search("read a file", 20).functions[-1] is old
    assert index.search("files.read_file", 1).functions == (old,)
