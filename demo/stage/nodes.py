"""The servers of Redis: one; or a primary and its replicas, or the nodes of a cluster. A
thread asks each of them again and again what it is, and tells the page."""

import contextlib
import re
import time

from servers import RedisServer, State
from talk import MOVED, Failure, Redis

REDIS_S = 2       # for an answer
LOOK_S = 0.25     # between two looks at the servers: a promotion is seen this late
LOOK_MAX_S = 0.5  # for what a server says of itself


class Node(RedisServer):
    """A server, and what it has said of itself."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        # the watching thread's, which others may read
        self.connection = None
        self.role = None      # the last one: "primary" or "replica"
        self.is_seen = False  # it has said so just now
        self.facts = {}
        self.replicas = 0     # that follow it

    def ask(self):
        try:
            self.connection = self.connection or Redis(self.uri, LOOK_MAX_S)
            info = self.connection.ask("INFO")
            return info, (self.connection.ask("CLUSTER", "NODES")
                          if "cluster_enabled:1" in info else None)
        except Failure:
            if self.connection:
                self.connection.close()
            self.connection = None
            return None, None

    def look(self):
        """Whether it has been promoted since it was last seen."""
        info, nodes = self.ask()
        self.is_seen, self.facts = info is not None, {}
        if not self.is_seen:
            return False
        said = dict(re.findall(r"^(\w+):(.*?)\r?$", info, re.MULTILINE))
        before, self.role = self.role, "primary" if said["role"] == "master" else "replica"
        self.replicas = int(said["connected_slaves"])
        self.facts = {"keys": sum(map(int, re.findall(r"^db\d+:keys=(\d+)", info, re.MULTILINE))),
                      "commands_s": int(said["instantaneous_ops_per_sec"]),
                      "of": said.get("master_port"), "slots": nodes and self.slots(nodes) or None}
        return before == "replica" and self.role == "primary"

    @staticmethod
    def slots(nodes):
        """How many slots the node has, by its own line: ... connected 0-5460 5465 [...]."""
        mine = next(line.split()[8:] for line in nodes.splitlines() if "myself" in line)
        ends = [list(map(int, part.split("-"))) for part in mine if part[0] != "["]
        return sum(end[-1] - end[0] + 1 for end in ends)

    def describe(self):
        state = self.state.name.lower()
        return {"name": self.name, "role": self.role, **self.facts,
                "state": "silent" if state == "up" and not self.is_seen else state}


class AsOne:
    """Connections to all primaries. That which has the key of a command replies to it."""

    def __init__(self, connections):
        self.connections = connections

    def ask_all(self, commands):
        """The reply is None where it is down."""
        replies = [None] * len(commands)
        for connection in self.connections:
            for i, reply in enumerate(connection.ask_all(commands)):
                replies[i] = replies[i] if reply is MOVED else reply
        return replies

    def ask(self, *command):
        return self.ask_all([command])[0]


class Nodes:
    def __init__(self, stage):
        self.stage, options = stage, stage.options
        uris = (options.redis_nodes or options.redis).split(",")
        pids = options.redis_pid.split(",")
        if len(pids) != len(uris) or not all(pid.isdigit() for pid in pids):
            raise OSError("--redis-pid must have a process for each server of --redis-nodes")
        if options.redis_nodes:
            self.one = None
            self.all = [Node(stage, uri.split("//")[-1], uri, int(pid), "start-primary")
                        for uri, pid in zip(uris, pids)]
        else:
            self.one = Node(stage, "Redis", uris[0], int(pids[0]), "start-redis")
            self.all = [self.one]
        self.killed = None  # a primary that is not back yet,
        self.killed_s, self.starts = 0, 0  # since when, and how often it had been started
        self.story = ""     # what has become of it

    # ------------------------------------------------------------ for buttons

    def primaries(self):
        return [node for node in self.all if node.state is State.UP and
                (node is self.one or (node.is_seen and node.role == "primary"))]

    def is_up(self):
        return bool(self.primaries())

    def must_be_up(self):
        if self.one:
            self.one.must_be_up()
        elif not self.is_up():
            raise Failure(503, "no primary is up; start it first")

    @contextlib.contextmanager
    def connect(self):
        self.must_be_up()  # else connecting would wait for it
        with contextlib.ExitStack() as open_ones:
            yield AsOne([open_ones.enter_context(contextlib.closing(Redis(node.uri, REDIS_S)))
                         for node in self.primaries()])

    def is_any_down(self):
        return any(node.is_down() for node in self.all)

    def kill_primary(self):
        """The one that works most, of those that have a replica. Returns its address."""
        able = [node for node in self.primaries() if node.replicas > 0]
        if not able:
            raise Failure(409, "no primary has a replica that could take over; if one is down, "
                          "start it, and wait a moment")
        node = max(able, key=lambda node: node.facts.get("commands_s", 0))
        node.may_end()
        self.story = f"Primary {node.name} was killed."
        self.killed_s, self.starts = time.monotonic(), node.starts
        self.killed = node
        node.kill()
        return node.name

    def start_all(self):
        down = [node for node in self.all if node.is_down()]
        for node in down:
            node.start_now()
        return ", ".join(node.name for node in down)

    # ------------------------------------------------------------- watching

    def begin(self):
        """All of them answer, or it fails."""
        for node in self.all:
            Redis(node.uri, REDIS_S).close()

    def note_promotion(self, node):
        text = f"replica {node.name} was promoted"
        if self.killed:
            text += f" after {time.monotonic() - self.killed_s:.1f} s"
            self.story += f" {text.capitalize()}."
        self.stage.hub.mark("promoted", text)

    def note_return(self):
        """A node of a cluster is a primary still, for a moment."""
        node = self.killed
        if not node or node.starts == self.starts or not node.is_seen or \
                (node.role == "primary" and "promoted" in self.story):
            return
        self.killed = None
        self.story += f" {node.name} is back, as a {node.role}" + (
            "." if node.role == "replica" else ", and empty: no replica had taken over.")

    def watch(self):
        """On a thread, until the stage ends."""
        while not self.stage.is_ending:
            for node in self.all:
                if node.look():
                    self.note_promotion(node)
            self.note_return()
            self.stage.hub.tell("nodes", {"nodes": [node.describe() for node in self.all],
                                          "story": self.story})
            time.sleep(LOOK_S)

    # ------------------------------------------------------------ main thread

    def tick(self):
        for node in self.all:
            node.tick()

    def let_continue(self):
        for node in self.all:
            node.let_continue()

    def end(self):
        for node in self.all:
            node.end()
