"""HTTP servers whose application says what it took a request for.

    heads.py SERVER PORT    SERVER: http.server wsgiref gunicorn tornado aiohttp twisted

Every answer's body is `saw method target agent`, each in hexadecimal; an agent that is missing is `-`.
"""

import sys


def saw(method, target, agent):
    def word(value):
        if value is None:
            return "-"
        octets = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
        return octets.hex() or "-"

    return f"saw {word(method)} {word(target)} {word(agent)}\n".encode()


def wsgi(environ, start_response):
    body = saw(environ["REQUEST_METHOD"], environ.get("PATH_INFO"), environ.get("HTTP_USER_AGENT"))
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def http_server(port):
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def __getattr__(self, name):
            if name.startswith("do_"):
                return self.answer
            raise AttributeError(name)

        def answer(self):
            body = saw(self.command, self.path, self.headers.get("User-Agent"))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    ThreadingHTTPServer(("", port), Handler).serve_forever()


def wsgiref(port):
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    class Handler(WSGIRequestHandler):
        def log_message(self, *_):
            pass

    make_server("", port, wsgi, Server, Handler).serve_forever()


def gunicorn(port):
    from gunicorn.app.base import BaseApplication

    class Application(BaseApplication):
        def load_config(self):
            self.cfg.set("bind", f"0.0.0.0:{port}")
            self.cfg.set("worker_class", "gthread")
            self.cfg.set("threads", 8)
            self.cfg.set("loglevel", "critical")

        def load(self):
            return wsgi

    Application().run()


def tornado(port):
    import asyncio
    import logging

    from tornado.httpserver import HTTPServer

    logging.disable(logging.CRITICAL)

    def answer(request):
        from tornado.httputil import HTTPHeaders, ResponseStartLine

        body = saw(request.method, request.uri, request.headers.get("User-Agent"))
        request.connection.write_headers(
            ResponseStartLine("HTTP/1.1", 200, "OK"), HTTPHeaders({"Content-Length": str(len(body))}), body
        )
        request.connection.finish()

    async def main():
        HTTPServer(answer).listen(port)
        await asyncio.Event().wait()

    asyncio.run(main())


def aiohttp(port):
    import asyncio
    import logging

    from aiohttp import web

    logging.disable(logging.CRITICAL)

    async def answer(request):
        return web.Response(body=saw(request.method, request.raw_path, request.headers.get("User-Agent")))

    async def main():
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", port).start()
        await asyncio.Event().wait()

    asyncio.run(main())


def twisted(port):
    from twisted.internet import reactor
    from twisted.web import resource, server

    class Answer(resource.Resource):
        isLeaf = True

        def render(self, request):
            return saw(request.method, request.uri, request.getHeader(b"User-Agent"))

    reactor.listenTCP(port, server.Site(Answer()))
    reactor.run()


if __name__ == "__main__":
    {
        "http.server": http_server,
        "wsgiref": wsgiref,
        "gunicorn": gunicorn,
        "tornado": tornado,
        "aiohttp": aiohttp,
        "twisted": twisted,
    }[sys.argv[1]](int(sys.argv[2]))
