"""A server that takes two milliseconds for each answer, in order, as many on a connection as are
asked; with --stall the first connection of every scan is left unanswered in its middle.

A scan begins with a request for the first page: from then on it counts anew.
"""

import argparse
import socketserver
import threading
import time

PACE = 0.002
STALL_BEHIND = 100


class Answers(socketserver.StreamRequestHandler):
    """One connection."""

    def setup(self):
        super().setup()
        self.connection.setsockopt(6, 1, 1)  # TCP_NODELAY

    def handle(self):
        answered = 0
        first = False
        due = time.monotonic()
        for line in self.rfile:
            words = line.split()
            while line not in (b"\r\n", b""):
                line = self.rfile.readline()
            if len(words) != 3:
                return
            first = first or words[1] == b"/page-1.html"
            if self.server.stalls and first and answered == STALL_BEHIND:
                while self.rfile.read(1):
                    pass
                return
            due = max(due, time.monotonic()) + PACE
            time.sleep(max(0.0, due - time.monotonic()))
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(words[1]), words[1]))
            answered += 1


class Server(socketserver.ThreadingTCPServer):
    """Takes connections."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """A client that has what it wants resets the connection."""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--stall", action="store_true")
    options = parser.parse_args()
    with Server(("0.0.0.0", options.port), Answers) as server:
        server.stalls = options.stall
        threading.current_thread().name = "accept"
        server.serve_forever()


if __name__ == "__main__":
    main()
