"""Chromium as the tests of the console drive it. A tab keeps what no page of the console may do."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from shutil import which
from typing import TYPE_CHECKING

from tests.acceptance.model import Json

if TYPE_CHECKING:
    from playwright.async_api import Browser, ConsoleMessage, Dialog, Locator, Page, Request, Response

PAGE_MS = 15_000
"""The deadline of each expectation. Generous, because machines that test are busy."""

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@asynccontextmanager
async def chromium() -> AsyncIterator["Browser"]:
    # Not on top: it is installed only where these tests run.
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        program = which("chromium-headless-shell")
        assert program, "chromium-headless-shell is missing: run scripts/servers --all"
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        await browser.close()


def form_of(run: str, seq: int) -> str:
    """The form of a call that waits."""
    return f"form.ask[id='{run[:12]}-{seq}']"


class Tab:
    """A page in Chromium. `faults` are errors on its console, where a violated policy is one, dialogs, and requests to
    other origins.
    """

    def __init__(self, page: "Page", origin: str) -> None:
        self.page, self.origin = page, origin
        self.faults: list[str] = []
        self._status = 200
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.faults.append(f"uncaught {error}"))
        page.on("request", self._on_request)
        page.on("dialog", self._on_dialog)

    async def open(self, path: str, status: int = 200) -> "Response":
        self._status = status
        answer = await self.page.goto(self.origin + path)
        assert answer is not None and answer.status == status, f"{path} answers {answer}"
        return answer

    def find(self, selector: str, text: str = "") -> "Locator":
        """The elements with this text; with `text` empty, all that the selector finds."""
        found = self.page.locator(selector)
        return found.filter(has_text=text) if text else found

    async def shows(self, selector: str, text: str = "", count: int | None = None) -> None:
        """Wait until there are so many such elements; without a count, until the first one is visible."""
        from playwright.async_api import expect

        found = self.find(selector, text)
        if count is None:
            await expect(found.first).to_be_visible(timeout=PAGE_MS)
        else:
            await expect(found).to_have_count(count, timeout=PAGE_MS)

    async def click(self, selector: str, text: str = "") -> None:
        await self.find(selector, text).first.click(timeout=PAGE_MS)

    async def change(self, form: str, name: str, text: str) -> None:
        """Write another argument into the form of a call."""
        await self.click(f"{form} details.edit summary")
        await self.page.locator(form).get_by_role("textbox", name=name).fill(text)

    async def deny(self, form: str, reason: str) -> None:
        await self.click(f"{form} details.deny summary")
        await self.page.locator(f"{form} [name=reason]").fill(reason)
        await self.click(f"{form} details.deny button")
        await self.shows(form, count=0)

    async def cancel(self) -> None:
        """Cancel the run whose page this is."""
        await self.click("summary", "Cancel run")
        await self.click("button", "Cancel it")
        await self.shows(".facts", "cancelled")

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.page.keyboard.press(key)

    async def text(self, selector: str = "main") -> str:
        return await self.page.locator(selector).first.inner_text()

    def _on_console(self, message: "ConsoleMessage") -> None:
        is_expected = f"status of {self._status} " in message.text
        if message.type in ("error", "warning") and not is_expected:
            self.faults.append(message.text)

    def _on_request(self, request: "Request") -> None:
        if not request.url.startswith(f"{self.origin}/"):
            self.faults.append(f"asks for {request.url}")

    async def _on_dialog(self, dialog: "Dialog") -> None:
        self.faults.append(f"dialog {dialog.message}")
        await dialog.dismiss()


class Chromium:
    """Opens tabs, each in a profile of its own. When it ends, none of them may have faults."""

    def __init__(self, browser: "Browser") -> None:
        self._browser = browser
        self.tabs: list[Tab] = []

    async def tab(self, origin: str, cookies: Mapping[str, str], **options: Json) -> Tab:
        """A tab that has the cookies of a session. `options` are those of Playwright's `new_context`."""
        context = await self._browser.new_context(**{"viewport": WIDE, **options})
        context.set_default_timeout(PAGE_MS)
        await context.add_cookies([{"name": n, "value": v, "url": origin} for n, v in cookies.items()])
        self.tabs.append(Tab(await context.new_page(), origin))
        return self.tabs[-1]

    async def close(self) -> None:
        faults = [fault for tab in self.tabs for fault in tab.faults]
        for tab in self.tabs:
            await tab.page.context.close()
        assert not faults, faults
