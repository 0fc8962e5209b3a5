"""Connections at a steady rate, each with a banner of its own; run inside of namespaces.

    load.py serve ADDRESS
    load.py connect RATE SECONDS ADDRESS     prints [[number, seconds till the banner or null], ...]
"""

import asyncio
import json
import sys

PORT = 2222
# A connection that takes longer has failed.
PATIENCE = 8


async def greet(reader, writer):
    """The server's side: says who it is, hears who the client is, and closes."""
    try:
        writer.write(b"SSH-2.0-server\r\n")
        await reader.readline()
        writer.close()
        await writer.wait_closed()
    except OSError:
        pass


async def serve(address):
    server = await asyncio.start_server(greet, address, PORT, backlog=4096)
    print("listening", flush=True)
    await server.serve_forever()


async def one(number, address):
    """One connection: how long it took until the server's banner was there, or None."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(address, PORT)
            writer.write(b"SSH-2.0-load_%d\r\n" % number)
            line = await reader.readline()
            took = loop.time() - started if line else None
            await reader.read()
            writer.close()
    except (OSError, TimeoutError):
        return [number, None]
    return [number, took]


async def connect(rate, seconds, address):
    loop = asyncio.get_running_loop()
    started = loop.time()
    tasks = []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0, started + number / rate - loop.time()))
        tasks.append(asyncio.create_task(one(number, address)))
    print(json.dumps(await asyncio.gather(*tasks)))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve(sys.argv[2]))
    else:
        asyncio.run(connect(float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
