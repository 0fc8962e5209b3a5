"""A PostgreSQL server of a benchmark's own."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time


class Postgres:
    """A server that listens in a folder of its own."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bannerwall-bench-"))
        shutil.chown(self.folder, "postgres")
        # Workers give up root's rights over others' files, and come to the socket all the same.
        self.folder.chmod(0o755)
        programs = max(pathlib.Path("/usr/lib/postgresql").iterdir()) / "bin"
        drop = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        data = self.folder / "data"
        subprocess.run(
            [*drop, programs / "initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-D", data],
            check=True, stdout=subprocess.DEVNULL,
        )
        words = [*drop, programs / "postgres", "-D", data, "-c", "listen_addresses=", "-k", self.folder]
        self.words = [*words, "-c", "max_connections=400"]
        self.number = 0
        self.start()

    def start(self):
        """Begins, and waits until it answers."""
        self.process = subprocess.Popen(self.words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while subprocess.run(["pg_isready", "-q", "-h", self.folder], check=False).returncode:
            time.sleep(0.1)

    def restart(self):
        """Ends as its owner would end it, and begins again."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.start()

    def said(self, url, query):
        """What psql says."""
        words = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", f"SET search_path = bannerwall; {query}"]
        return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()

    def database(self):
        """The URL of a new database."""
        self.number += 1
        make = f"CREATE DATABASE bench{self.number}"
        subprocess.run(["psql", "-qXh", self.folder, "-U", "postgres", "-c", make], check=True)
        return f"postgresql:///bench{self.number}?host={self.folder}&user=postgres"

    def processor_time(self):
        """That of sessions that have ended, in seconds."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def whole_processor_time(self):
        """The same, with that of its processes that are there still."""
        total = self.processor_time()
        for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid:
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def end(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)
