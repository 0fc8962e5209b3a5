"""SSH clients that say what they took for a server's identification.

    ssh.py CLIENT HOST PORT...    CLIENT: paramiko asyncssh

A line a port: its number, and the identification in hexadecimal or `-`.
"""

import asyncio
import logging
import socket
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

PATIENCE = 5
AT_ONCE = 16

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)


def tell(port, value):
    octets = value if isinstance(value, bytes) else (value or "").encode("utf-8", "surrogateescape")
    # One call: threads may not come between.
    sys.stdout.write(f"{port} {octets.hex() or '-'}\n")


def paramiko(host, ports):
    import paramiko

    def one(port):
        transport = None
        try:
            stream = socket.create_connection((host, port), timeout=PATIENCE)
            transport = paramiko.Transport(stream)
            transport.banner_timeout = PATIENCE
            transport.start_client(timeout=PATIENCE)
        except Exception:
            pass
        tell(port, transport.remote_version if transport else None)
        if transport:
            transport.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, ports))


def asyncssh(host, ports):
    import asyncssh

    async def one(port, gate):
        seen = []

        class Client(asyncssh.SSHClient):
            def connection_made(self, connection):
                seen.append(connection)

        async with gate:
            connecting = asyncssh.connect(
                host, port, known_hosts=None, client_factory=Client, config=None, client_keys=None
            )
            try:
                await asyncio.wait_for(connecting, PATIENCE)
            except Exception:
                pass
        tell(port, seen[0].get_extra_info("server_version") if seen else None)

    async def main():
        gate = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*[one(port, gate) for port in ports])

    asyncio.run(main())


if __name__ == "__main__":
    ports = [int(port) for port in sys.argv[3:]]
    {"paramiko": paramiko, "asyncssh": asyncssh}[sys.argv[1]](sys.argv[2], ports)
