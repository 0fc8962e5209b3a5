"""HTTP clients that say what they took for an answer's Server field.

    web.py CLIENT HOST PORT...    CLIENT: http.client requests aiohttp httplib2 tornado

A line a port: its number, and the field in hexadecimal or `-`. A port that answers nothing has `-`.
"""

import asyncio
import logging
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

PATIENCE = 3
AT_ONCE = 16

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)


def tell(port, value):
    octets = (value or "").encode("utf-8", "surrogateescape")
    # One call: threads may not come between.
    sys.stdout.write(f"{port} {octets.hex() or '-'}\n")


def http_client(host, port):
    from http.client import HTTPConnection

    connection = HTTPConnection(host, port, timeout=PATIENCE)
    connection.request("GET", "/")
    return connection.getresponse().getheader("Server")


def requests(host, port):
    import requests

    url = f"http://{host}:{port}/"
    with requests.get(url, stream=True, timeout=PATIENCE, allow_redirects=False) as response:
        return response.headers.get("Server")


def httplib2(host, port):
    import httplib2

    http = httplib2.Http(timeout=PATIENCE)
    http.follow_redirects = False
    return http.request(f"http://{host}:{port}/")[0].get("server")


async def aiohttp(host, port):
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        async with session.get(f"http://{host}:{port}/", allow_redirects=False) as response:
            return response.headers.get("Server")


async def tornado(host, port):
    from tornado.httpclient import AsyncHTTPClient

    client = AsyncHTTPClient(force_instance=True)
    response = await client.fetch(
        f"http://{host}:{port}/", raise_error=False, request_timeout=PATIENCE, follow_redirects=False
    )
    return response.headers.get("Server")


def each_by_thread(ask, host, ports):
    def one(port):
        try:
            tell(port, ask(host, port))
        except Exception:
            tell(port, None)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, ports))


def each_by_task(ask, host, ports):
    async def main():
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(port):
            async with gate:
                try:
                    tell(port, await asyncio.wait_for(ask(host, port), PATIENCE))
                except Exception:
                    tell(port, None)

        await asyncio.gather(*[one(port) for port in ports])

    asyncio.run(main())


if __name__ == "__main__":
    name, host, ports = sys.argv[1], sys.argv[2], [int(port) for port in sys.argv[3:]]
    by_thread = {"http.client": http_client, "requests": requests, "httplib2": httplib2}
    if name in by_thread:
        each_by_thread(by_thread[name], host, ports)
    else:
        each_by_task({"aiohttp": aiohttp, "tornado": tornado}[name], host, ports)
