"""Suricata in NFQ mode, where it is on PATH or named by SURICATA=: the rules of one kind that we also have, and its events."""

import os
import shutil

from .cases import QUEUE, Case

PROGRAM = os.environ.get("SURICATA") or shutil.which("suricata")
CONFIGURATION = """%YAML 1.1
---
default-log-dir: {folder}
nfq: {{mode: accept, fail-open: yes}}
app-layer: {{protocols: {{ssh: {{enabled: yes}}, http: {{enabled: yes}}}}}}
outputs:
  - eve-log: {{enabled: yes, filetype: regular, filename: /dev/null, append: yes, types: [ssh, http, alert]}}
"""
RULES = """alert ssh any any -> any any (msg:"a forbidden server"; ssh.software; content:"libssh"; sid:1000001; rev:1;)
alert http any any -> any any (msg:"a forbidden client"; http.user_agent; content:"sqlmap"; sid:1000002; rev:1;)
"""

CASES = {
    "suricata": Case(
        "Suricata, NFQ",
        # It says on its output that it is ready.
        ["sh", "-c", 'exec "$@" >&2', "sh", PROGRAM, "-c", "{folder}/suricata.yaml", "-S", "{folder}/local.rules", "-l", "{folder}",
         "-q", QUEUE, "--runmode", "workers"],
        files={"suricata.yaml": CONFIGURATION, "local.rules": RULES}, ready="Engine started",
        missing=None if PROGRAM else "there is no suricata on PATH, nor named by SURICATA="),
}
