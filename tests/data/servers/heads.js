// node's HTTP server, which says what it took a request for: `heads.js PORT`, see heads.py.
"use strict";
const word = (value) => (value ? Buffer.from(value, "latin1").toString("hex") : "-");
const server = require("http").createServer((request, response) => {
  response.end(`saw ${word(request.method)} ${word(request.url)} ${word(request.headers["user-agent"])}\n`);
});
server.on("clientError", (_, socket) => socket.destroy());
server.listen(Number(process.argv[2]), "0.0.0.0");
