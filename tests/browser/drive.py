"""Drives a headless chromium by its DevTools: commands in as JSON lines, answers out.

{"go": URL} loads a page, {"evaluate": EXPRESSION} asks it, {"width": N, "height": N, "dark": BOOL} sets its size and
colours, {"shot": FILE} with these takes a picture, {"pdf": FILE} prints it. An answer is {"value": …, "console": [what the page has complained of since]} or {"error": …}.
"""

import asyncio
import base64
import json
import os
import shutil
import sys
import tempfile

import aiohttp

PATIENCE = 60


class Page:
    """One page of the browser."""

    def __init__(self, socket):
        self.socket = socket
        self.number = 0
        self.answers = {}
        self.console = []
        self.loaded = asyncio.Event()
        self.reader = asyncio.create_task(self.read())

    async def read(self):
        async for message in self.socket:
            told = json.loads(message.data)
            if "id" in told:
                self.answers.pop(told["id"]).set_result(told)
            elif told["method"] == "Page.loadEventFired":
                self.loaded.set()
            elif told["method"] == "Log.entryAdded":
                self.console.append(told["params"]["entry"]["text"])
            elif told["method"] == "Runtime.exceptionThrown":
                self.console.append(json.dumps(told["params"]["exceptionDetails"]))
            elif told["method"] == "Page.javascriptDialogOpening":
                self.console.append("a dialog: " + told["params"]["message"])
                asyncio.create_task(self.ask("Page.handleJavaScriptDialog", accept=True))

    async def ask(self, method, **parameters):
        self.number += 1
        answer = self.answers[self.number] = asyncio.get_running_loop().create_future()
        await self.socket.send_str(json.dumps({"id": self.number, "method": method, "params": parameters}))
        told = await asyncio.wait_for(answer, PATIENCE)
        if "error" in told:
            raise RuntimeError(f"{method}: {told['error']}")
        return told["result"]

    async def obey(self, command):
        if "go" in command:
            self.loaded.clear()
            told = await self.ask("Page.navigate", url=command["go"])
            if "errorText" in told:
                raise RuntimeError(told["errorText"])
            await asyncio.wait_for(self.loaded.wait(), PATIENCE)
            return None
        if "evaluate" in command:
            told = await self.ask("Runtime.evaluate", expression=command["evaluate"], returnByValue=True)
            if "exceptionDetails" in told:
                raise RuntimeError(json.dumps(told["exceptionDetails"]))
            return told["result"].get("value")
        if "pdf" in command:
            printed = await self.ask("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
            with open(command["pdf"], "wb") as file:
                file.write(base64.b64decode(printed["data"]))
            return None
        await self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=command["width"], height=command["height"], deviceScaleFactor=1, mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if command.get("dark") else "light"}
        await self.ask("Emulation.setEmulatedMedia", features=[scheme])
        if "shot" in command:
            await self.ask("Emulation.setScrollbarsHidden", hidden=True)
            shot = await self.ask("Page.captureScreenshot", format="png")
            with open(command["shot"], "wb") as file:
                file.write(base64.b64decode(shot["data"]))
        return None


async def port_of(profile, browser):
    path = os.path.join(profile, "DevToolsActivePort")
    for _ in range(PATIENCE * 10):
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                lines = file.read().split("\n")
            if len(lines) > 1:
                return int(lines[0])
        if browser.returncode is not None:
            raise RuntimeError(f"chromium ended with {browser.returncode}")
        await asyncio.sleep(0.1)
    raise RuntimeError("chromium does not listen")


async def main():
    profile = tempfile.mkdtemp(prefix="browser-")
    browser = await asyncio.create_subprocess_exec(
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
        f"--user-data-dir={profile}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await port_of(profile, browser)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [page for page in await answer.json() if page["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await page.ask(f"{domain}.enable")
                print(json.dumps({"value": "ready", "console": []}), flush=True)
                loop = asyncio.get_running_loop()
                while line := await loop.run_in_executor(None, sys.stdin.readline):
                    try:
                        value = await page.obey(json.loads(line))
                        answer = {"value": value, "console": page.console}
                    except Exception as error:
                        answer = {"error": repr(error)}
                    page.console = []
                    print(json.dumps(answer), flush=True)
    finally:
        if browser.returncode is None:
            browser.kill()
        await browser.wait()
        shutil.rmtree(profile, ignore_errors=True)


asyncio.run(main())
