// node's HTTP client, which says what it took for an answer's Server field: `web.js HOST PORT...`, see web.py.
"use strict";
const http = require("http");
const [host, ...ports] = process.argv.slice(2);
const PATIENCE = 3000;
const AT_ONCE = 16;

function ask(port) {
  return new Promise((done) => {
    let seen = "";
    const note = (headers) => { seen += headers.server || ""; };
    const request = http.get({ host, port, path: "/", agent: false });
    const end = () => {
      request.destroy();
      console.log(port, Buffer.from(seen, "latin1").toString("hex") || "-");
      done();
    };
    const timer = setTimeout(end, PATIENCE);
    const finish = () => { clearTimeout(timer); end(); };
    request.on("information", (info) => note(info.headers));
    request.on("upgrade", (response) => { note(response.headers); finish(); });
    request.on("response", (response) => { note(response.headers); finish(); });
    request.on("error", finish);
  });
}

async function lane() {
  for (let port = ports.shift(); port !== undefined; port = ports.shift()) await ask(port);
}

for (let lanes = 0; lanes < AT_ONCE; lanes++) lane();
