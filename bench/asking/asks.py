"""Who asks how much, and the ways of asking."""

import json
import os
import pathlib
import subprocess
import time

from common.commands import RELEASE

from .network import inside
from .servers import PORTS, page

PROGRAM = pathlib.Path(os.environ.get("BANNERWALL", RELEASE / "bannerwall"))

# name: pages of each asker. In bannerwall one asker is the command line, several are rule files.
ASKS = {
    "1 × 120": [range(1, 121)],
    "1 × 320": [range(1, 321)],
    "100 × 1": [[number] for number in range(1, 101)],
    "2 × 20": [range(1, 21), range(21, 41)],
    "2 × 120": [range(1, 121), range(121, 241)],
    "2 × 200": [range(1, 201), range(201, 401)],
}
LONGEST = 120

RULE = """[[rule]]
id = "asker-{asker}-{number}"
title = "Asker {asker} sees page {number}"
protocol = "http"
from = "server"
request = {{ method = "GET", path = "{path}" }}
match.status = '^200$'
action = "alert"

"""

NMAP = """local http = require "http"
local nmap = require "nmap"
local stdnse = require "stdnse"
portrule = function() return true end
action = function(host, port)
  local all
  for number = 1, tonumber(stdnse.get_script_args("count")) do
    all = http.pipeline_add("/page-" .. number .. ".html", nil, all, "GET")
  end
  local start = nmap.clock_ms()
  local answers = http.pipeline_go(host, port, all)
  local good = 0
  for _, answer in ipairs(answers) do
    if answer.status == 200 then good = good + 1 end
  end
  return string.format("asked %d %f", good, nmap.clock_ms() - start)
end
"""


class Asking:
    """Everything that asks, with its files in `folder`."""

    def __init__(self, network, folder):
        self.network = network
        self.folder = pathlib.Path(folder)
        (self.folder / "pipeline.nse").write_text(NMAP, encoding="ascii")
        for name, askers in ASKS.items():
            self._write_rules(name, askers)

    def _rules(self, name):
        return self.folder / name.replace(" ", "")

    def _write_rules(self, name, askers):
        folder = self._rules(name)
        folder.mkdir()
        for asker, pages in enumerate(askers if len(askers) > 1 else []):
            text = "".join(RULE.format(asker=asker, number=number, path=page(number)) for number in pages)
            (folder / f"asker-{asker}.toml").write_text(text, encoding="ascii")
        (folder / "nobody.toml").write_text("", encoding="ascii")

    def bannerwall(self, server, name, *flags):
        """Milliseconds of the whole program, and good answers."""
        askers = ASKS[name]
        pages = askers[0] if len(askers) == 1 else askers[0][:1]
        output = self.folder / f"out-{server}-{name}-{len(flags)}".replace(" ", "").replace(",", "")
        namespace, address = self.network.where()
        words = [PROGRAM, "scan", "http", address, "-p", PORTS[server], "--rules", self._rules(name), "--format",
                 "json", "-o", output, "-q", "--total-timeout", f"{LONGEST}s", *flags]
        for number in pages:
            words += ["--path", page(number)]
        elapsed = self._timed(namespace, words)
        with open(output, encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        output.unlink()
        good = {event["http"]["url"] for event in events
                if event["event_type"] == "http" and event["http"].get("status") == 200}
        return elapsed, len(good)

    def curl(self, server, name, *flags, close=True):
        """The same of curl."""
        namespace, address = self.network.where()
        config = self.folder / f"curl-{server}-{name}-{len(flags)}-{close}".replace(" ", "").replace(",", "")
        pages = [number for pages in ASKS[name] for number in pages]
        lines = "".join(f'url = "http://{address}:{PORTS[server]}{page(number)}"\noutput = "/dev/null"\n'
                        for number in pages)
        config.write_text(lines, encoding="ascii")
        words = ["curl", "-s", "-w", "%{http_code}\\n", "--config", config, *flags]
        words += ["-H", "Connection: close"] if close else []
        with inside(namespace):
            started = time.monotonic()
            done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False,
                                  timeout=LONGEST)
        return (time.monotonic() - started) * 1000, done.stdout.split().count("200")

    def nmap(self, server, name):
        """The same of nmap's http.pipeline_go alone, without the start of nmap."""
        namespace, address = self.network.where()
        count = sum(len(pages) for pages in ASKS[name])
        words = ["nmap", "-n", "-Pn", "-sT", "-p", PORTS[server], "--script", self.folder / "pipeline.nse",
                 "--script-args", f"count={count}", address]
        with inside(namespace):
            text = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False,
                                  timeout=LONGEST).stdout
        words = text.split("asked ", 1)[1].split() if "asked " in text else ["0", "nan"]
        return float(words[1]), int(words[0])

    @staticmethod
    def _timed(namespace, words):
        with inside(namespace):
            started = time.monotonic()
            done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False,
                                  timeout=LONGEST)
        elapsed = (time.monotonic() - started) * 1000
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return elapsed


# name: how it is done, and whether it waits for a round trip or two before each request.
METHODS = {
    "curl, serial, new connections": (lambda asking, *what: asking.curl(*what), True),
    "curl, 20 parallel, new connections": (
        lambda asking, *what: asking.curl(*what, "-Z", "--parallel-immediate", "--parallel-max", "20"), False),
    "curl, one persistent connection": (lambda asking, *what: asking.curl(*what, close=False), True),
    "nmap http.pipeline_go": (lambda asking, *what: asking.nmap(*what), False),
    "bannerwall --no-pipeline": (lambda asking, *what: asking.bannerwall(*what, "--no-pipeline"), True),
    "bannerwall": (lambda asking, *what: asking.bannerwall(*what), False),
    "bannerwall --host-connections 4": (
        lambda asking, *what: asking.bannerwall(*what, "--host-connections", "4"), False),
}
