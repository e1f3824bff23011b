"""What every page of the console has: its files, and the stream that tells of changes."""

import gzip
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path

import anyio
import pytest
from httpx2 import ASGITransport, AsyncClient

from portal.console.app import _events
from portal.console.pages import FOLDER
from portal.console.source import LiveSource
from tests.portal.console.desk import BASE, Desk
from tests.portal.peers import DEADLINE_SECONDS, opened

FIRST_VISIT_BYTES = 40_000


def test_only_files_of_the_static_folder_are_served(desk: Desk) -> None:
    served = desk.client.get(f"{BASE}/static/mark.svg")
    assert (served.status_code, "immutable" in served.headers["cache-control"]) == (200, True)
    for name in ("..%2fapp.py", "%2fetc%2fpasswd", "nothing.css"):
        assert desk.client.get(f"{BASE}/static/{name}").status_code == 404


def test_pages_have_no_style_or_script_of_their_own_and_no_other_origin() -> None:
    for path in (FOLDER / "templates").iterdir():
        text = path.read_text()
        assert not [
            each for each in (" style=", "<style", " onclick=", "hx-on", "<script>", "://") if each in text
        ]


def test_a_first_visit_is_small(desk: Desk) -> None:
    html = desk.client.get(f"{BASE}/runs").text
    answers = [desk.client.get(f"{BASE}/static/{path.name}") for path in (FOLDER / "static").iterdir()]
    assert all(f"{each.url.path}" in html for each in answers)
    sizes = [len(gzip.compress(html.encode())), *(each.num_bytes_downloaded for each in answers)]
    assert sum(sizes) < FIRST_VISIT_BYTES, sizes


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"json": {"q": "x"}}, 415),
        ({"data": {"q": "x" * (1 << 20)}}, 413),
        ({"content": b"q=\xff", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, 400),
    ],
)
def test_what_is_no_form_is_refused(desk: Desk, sent: dict[str, object], status: int) -> None:
    assert desk.client.post(f"{BASE}/runs/run_1/answers", **sent).status_code == status  # type: ignore[arg-type]  # one of them


async def test_a_stream_ends_so_that_its_browser_is_admitted_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.console.app.STREAM_SECONDS", -1)
    assert len([event async for event in _events(desk.source)]) == 1


async def test_head_of_the_stream_ends_at_once(desk: Desk) -> None:
    async with AsyncClient(transport=ASGITransport(desk.client.app), base_url="http://127.0.0.1") as client:
        with anyio.fail_after(DEADLINE_SECONDS):
            head = await client.head(f"{BASE}/live")
    assert (head.status_code, head.headers["content-type"].split(";")[0]) == (200, "text/event-stream")


async def test_the_stream_tells_at_once_and_then_of_each_change(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.console.source.SILENCE_SECONDS", 0.05)
    async with opened(tmp_path, {}) as portal:
        live = LiveSource(portal.portal, "/ui", lambda: "stdio")
        with anyio.fail_after(DEADLINE_SECONDS):
            for each in (desk.source, live):
                async with aclosing(_events(each)) as events:
                    assert "changed" in await anext(events)
                    while "keep-alive" not in await anext(events):
                        pass
                    if each is live:
                        portal.portal.runs.changes.wake()
                        assert "changed" in await anext(events)


def test_htmx_is_the_file_whose_sha256_the_notice_gives() -> None:
    vendored = sha256((FOLDER / "static/htmx.js").read_bytes()).hexdigest()
    assert f"sha256 {vendored}" in (Path(__file__).parents[3] / "NOTICE").read_text()
