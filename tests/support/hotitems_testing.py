"""What the tests of demo/hotitems share: its instances, and the database.

SHED_TEST_REDIS names the Redis whose database 9 is used, SHED_TEST_MYSQL the
database whose tables of sql/ are replaced.
"""

import collections
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCALE = int(os.environ.get("SHED_TEST_SCALE", "1"))
PATIENCE_S = 60 * SCALE
MYSQL = os.environ["SHED_TEST_MYSQL"]

Answer = collections.namedtuple("Answer", "status body headers")


def wait_for(condition, what="what is waited for", pause_s=0.01):
    """Look again and again until it is true, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(pause_s)
    return result


def own_database(uri):
    """The same Redis, but database 9."""
    if uri.startswith("unix:"):
        return uri.split("?")[0] + "?db=9"
    return "redis://" + uri[len("redis://"):].split("/")[0] + "/9"


def sql(text="", *files, uri=MYSQL):
    """Run statements, or files of sql/. Returns the rows as lists of texts."""
    script = '. "$0/tests/support/servers.sh"; run_sql "$@"'
    paths = [os.path.join(ROOT, "sql", name) for name in files]
    done = subprocess.run(["bash", "-c", script, ROOT, uri, *paths], input=text,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return [line.split("\t") for line in done.stdout.splitlines()[1:]]


def slow_queries(seconds):
    """Each look at an item's row takes this long, until restore_queries. A view
    needs no change of the service."""
    sql(f"RENAME TABLE item TO item_row; "
        f"CREATE VIEW item AS SELECT * FROM item_row WHERE SLEEP({seconds}) = 0")


def restore_queries():
    sql("DROP VIEW item; RENAME TABLE item_row TO item")


@contextlib.contextmanager
def no_items():
    """There is no table of items, so that every query fails."""
    sql("RENAME TABLE item TO item_away")
    try:
        yield
    finally:
        sql("RENAME TABLE item_away TO item")


@contextlib.contextmanager
def held_items():
    """Lock the table of items, so that every reader waits."""
    locker = subprocess.Popen(
        ["bash", "-c", '. "$0/tests/support/servers.sh"; run_sql "$1"', ROOT, MYSQL],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        locker.stdin.write("LOCK TABLES item WRITE;\n")
        locker.stdin.flush()
        wait_for(lambda: [row for row in sql("SHOW OPEN TABLES LIKE 'item'")
                          if int(row[2]) > 0], "the lock of the table")
        yield
    finally:
        locker.stdin.close()
        locker.wait(PATIENCE_S)


def ask(port, method, path, body=None, headers=None, connection=None):
    """An answer in JSON is decoded."""
    c = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        c.request(method, path, body, headers or {})
        answer = c.getresponse()
        data = answer.read()
    finally:
        if connection is None:
            c.close()
    if data and answer.headers.get("Content-Type", "") == "application/json":
        data = json.loads(data)
    return Answer(answer.status, data, answer.headers)


class Program:
    """A program that prints the address at which it listens first."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        first = self.process.stdout.readline()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)\n", first)
        if not found:
            self.process.kill()
            self.process.wait()
            raise AssertionError("it prints no address: " + first)
        self.port = int(found.group(1))

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        return status


class Instance(Program):
    """A running hotitems, whose log is read as it comes."""

    more = ()  # options of each

    def __init__(self, hotitems, *options, redis=None):
        self.lines = []
        super().__init__(
            hotitems, "--redis", redis or own_database(os.environ["SHED_TEST_REDIS"]),
            "--mysql", MYSQL, "--timeout-ms", "60000", *self.more, *options)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def ask(self, method, path, body=None, headers=None, connection=None):
        return ask(self.port, method, path, body, headers, connection)

    def get(self, path, **headers):
        return self.ask("GET", path,
                        headers={k.replace("_", "-"): v for k, v in headers.items()})

    def order(self, item, quantity, key):
        return self.ask("POST", f"/items/{item}/orders",
                        json.dumps({"quantity": quantity}), {"Idempotency-Key": key})

    def metric(self, name):
        text = self.get("/metrics").body.decode()
        found = re.search("^" + re.escape(name) + r"(?:\{[^}]*\})? (\S+)$", text, re.M)
        return float(found.group(1))

    def raw(self, data):
        """Send these bytes; return what comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # refused before all was sent
            got = b""
            try:
                while piece := s.recv(65536):
                    got += piece
            except ConnectionResetError:
                pass
            return got

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)  # it reads until the end
        return super().end()


class Service:
    """An instance that can be started again on its port, with a file for its
    log."""

    def __init__(self, hotitems, redis, log, *options):
        self.command = [hotitems, "--redis", redis, "--mysql", MYSQL, *options]
        self.log, self.port = log, 0
        self.begin()

    def begin(self):
        with open(self.log, "ab") as log:
            at = log.tell()
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.command, "--port", str(self.port)],
                stdout=log)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with open(self.log, "rb") as log:
                log.seek(at)
                found = re.match(rb"http://127\.0\.0\.1:(\d+)\n", log.readline())
            if found:
                break
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("hotitems does not start")
            time.sleep(0.02)
        self.port = int(found.group(1))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


class Case(unittest.TestCase):
    hotitems = ""  # the program
    items_made = 0

    @classmethod
    def setUpClass(cls):
        sql("DROP TABLE IF EXISTS item_order")
        sql("", "schema.sql", "items.sql", "fence.sql", "hotitems.sql")

    def setUp(self):
        self.instances = []
        self.addCleanup(lambda: [i.end(signal.SIGKILL) for i in self.instances])

    def start(self, *options, **others):
        self.instances.append(Instance(self.hotitems, *options, **others))
        return self.instances[-1]

    wait_for = staticmethod(wait_for)

    held_items = staticmethod(held_items)

    def fresh_item(self, stock):
        """Returns an item of the test's own, which no cache has."""
        Case.items_made += 1
        item = 10 ** 9 + int(time.time()) * 1000 + Case.items_made
        sql(f"INSERT INTO item (id, name, price_cents, stock) "
            f"VALUES ({item}, 'Test', 500, {stock})")
        self.addCleanup(sql, f"DELETE FROM item WHERE id = {item}")
        return item


class OwnRedis:
    """A server that a test may stop, kill, and start again without its data."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="snowshed-redis.")
        self.path = os.path.join(self.folder, "sock")
        self.uri = "unix:" + self.path
        found = subprocess.run(
            ["bash", "-c", '. "$0/tests/support/servers.sh"; find_redis', ROOT],
            capture_output=True, text=True, check=True)
        self.program = found.stdout.strip()
        self.process = None
        self.start()

    def start(self):
        # It ends with the test even if that is killed. Its command line is kept, so
        # that a stage can start it again; before 7.0 it is not.
        version = subprocess.run([self.program, "--version"], capture_output=True,
                                 text=True, check=True).stdout
        title = [] if re.search(r" v=[0-6]\.", version) else ["--set-proc-title", "no"]
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", self.program, "--port", "0",
             "--unixsocket", self.path, "--save", "", "--appendonly", "no",
             "--dir", self.folder, *title],
            stdout=subprocess.DEVNULL)
        wait_for(lambda: self.is_up() or self.process.poll() is not None,
                 "redis-server answers")
        if self.process.poll() is not None:
            raise AssertionError("redis-server does not start")

    def for_stage(self):
        return ["--redis", self.uri, "--redis-pid", str(self.process.pid)]

    def is_up(self):
        try:
            return self.ask("PING") == "PONG"
        except OSError:
            return False

    def ask(self, *words):
        """The reply as a text: a status, a number, a short string, or an error."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE_S)
            s.connect(self.path)
            s.sendall(" ".join(words).encode() + b"\r\n")
            with s.makefile("rb") as replies:
                line = replies.readline().decode().rstrip()
                if line.startswith("$") and line != "$-1":
                    return replies.read(int(line[1:])).decode()
                return line[1:]

    @classmethod
    def of(cls, test):
        """One that ends with a test."""
        redis = cls()
        test.addCleanup(redis.end)
        return redis

    def state(self):
        """One letter, as in ps: T is stopped."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Own:
    """Servers that a script of the shell starts, and that end with the test. What it says
    of them is the words of one line."""

    def __init__(self, script):
        self.folder = tempfile.mkdtemp(prefix="snowshed-own.")
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "bash", "-c",
             '. "$0/tests/support/servers.sh"; . "$0/tests/support/topologies.sh"; '
             f"guard_servers; {script} && read -r _", ROOT, self.folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline().split()

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class OwnDatabase(Own):
    def __init__(self):
        super().__init__('start_database "$1" >&2 && echo "$started_pid $MYSQL_URI"')
        self.pid, self.uri = self.said


class OwnTopology(Own):
    """A cluster of three primaries with a replica each, or a primary with a replica and
    three sentinels."""

    def __init__(self, name):
        start = {"cluster": 'start_cluster "$1" 3 1', "sentinel": 'start_sentinels "$1"'}[name]
        super().__init__(f'{start} >&2 && echo "${name}_uri $(node_uris) $(node_pids)"')
        self.uri, self.nodes, self.pids = self.said

    def for_stage(self):
        return ["--redis", self.uri, "--redis-nodes", self.nodes, "--redis-pid", self.pids]
