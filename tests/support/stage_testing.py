"""The stage of demo/hotitems, as its page and other clients meet it."""

import http.client
import json
import os
import threading
import time

from hotitems_testing import MYSQL, PATIENCE_S, ROOT, Program, ask, sql, wait_for

STAGE = os.path.join(ROOT, "demo", "stage", "stage")

LANES = ("none", "setnx", "snowshed")
JSON = {"Content-Type": "application/json"}


def load_tables(uri=MYSQL):
    """Load everything that a stage needs in the database."""
    sql("DROP TABLE IF EXISTS item_order", uri=uri)
    sql("", "schema.sql", "items.sql", "fence.sql", "hotitems.sql", "capacity.sql", uri=uri)


class Listener:
    """Reads the stage's /events as they come, on a thread, until the connection ends."""

    def __init__(self, port):
        self.events = []  # (name, data)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self.connection.request("GET", "/events")
        self.socket = self.connection.sock  # the answer takes it over
        self.answer = self.connection.getresponse()
        if self.answer.status != 200:
            raise AssertionError(f"/events: {self.answer.status}")
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        name = ""
        try:
            for line in self.answer:
                line = line.decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    self.events.append((name, json.loads(line[6:])))
        except (OSError, ValueError, http.client.HTTPException):
            pass  # it was closed

    def all(self, name):
        return [data for which, data in self.events if which == name]

    def close(self):
        try:
            self.socket.shutdown(2)
        except OSError:
            pass  # the server has closed it
        self.thread.join(PATIENCE_S)
        self.answer.close()
        self.connection.close()


class Stage(Program):
    """A running stage, which may stop its Redis, and kill it and a database of its
    own."""

    def __init__(self, redis, *options, programs, database=None):
        """programs: those of the service and of the tool."""
        servers = redis.for_stage()
        servers += ["--mysql", database.uri, "--db-pid", database.pid] if database else \
            ["--mysql", MYSQL]
        # It ends with the test even if that is killed.
        super().__init__("setpriv", "--pdeathsig", "TERM", STAGE, "--hotitems", programs[0],
                         "--snowshed", programs[1], *servers, *options)

    def get(self, path):
        return ask(self.port, "GET", path)[1]

    def press(self, action):
        status, body, _ = ask(self.port, "POST", "/actions/" + action, "{}", JSON)
        if status != 200:
            raise AssertionError(f"{action}: {status} {body}")
        return body["text"]

    def instances(self):
        """The ports of each lane's instances. One that was killed may still be
        among them."""
        return {lane["name"]: [i["port"] for i in lane["instances"]]
                for lane in self.get("/lanes")["lanes"]}

    def ports(self, lane):
        return self.instances()[lane]

    def pids(self):
        return {i["pid"] for lane in self.get("/lanes")["lanes"] for i in lane["instances"]}

    def ask_any(self, lane, path):
        """Ask as a client does that tries the next instance if one has died."""
        for port in self.ports(lane):
            try:
                status, body, _ = ask(port, "GET", path)
            except (OSError, http.client.HTTPException):
                continue
            if status == 200:
                return body
        return None

    def await_items(self, count):
        """Until Redis has the items 1 to count, in the lane snowshed."""
        def are_there(ids):
            answer = self.ask_any("snowshed", "/items?ids=" + ids)
            return answer and {item["origin"] for item in answer["items"]} == {"redis"}

        for first in range(1, count, 100):
            ids = ",".join(map(str, range(first, min(first + 99, count) + 1)))
            wait_for(lambda: are_there(ids), "Redis has the items")

    def sample(self, port, since_ms):
        """The newest sample of an instance if it was taken since then, else
        None; also None if the instance is dead."""
        try:
            newest = ask(port, "GET", f"/sample?after={max(since_ms - 1, 0)}")[1]
        except (OSError, http.client.HTTPException):
            return None
        return newest if newest["time_ms"] >= since_ms else None

    def samples(self):
        """A sample of each instance, by lane, taken after this call, because an
        older one describes the past."""
        since_ms = int(time.time() * 1000)

        def look():
            found = {lane: {port: self.sample(port, since_ms) for port in ports}
                     for lane, ports in self.instances().items()}
            return all(len(lane) == 2 and all(lane.values()) for lane in found.values()) \
                and found
        return wait_for(look, "a sample of each instance")

    def counts(self, what):
        return {lane: sum(sample[what] for sample in samples.values())
                for lane, samples in self.samples().items()}

    def settled(self):
        """The queries of each lane, once none is under way, and none was begun
        between two samples of each instance."""
        def queries(samples):
            return {port: sample["queries"] for lane in samples.values()
                    for port, sample in lane.items()}

        def look():
            before, after = self.samples(), self.samples()
            return queries(before) == queries(after) and not any(
                sample["queries_alive"] for lane in after.values()
                for sample in lane.values())
        wait_for(look, "no queries")
        return self.counts("queries")
