"""The instances of the service and their clients: started, watched, and started again
when they end. An instance that dies is back at once; one that keeps dying, after a pause
that grows."""

import enum
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time

from hub import now_ms
from options import HERE, PASSED_ON
from talk import end_all, start

LANES = ("none", "setnx", "snowshed")
CLIENTS_MAX, SKEW_MAX = 1000, 2.0

STABLE_S = 5          # one that lived this long did not fail to start
RETRY_S, RETRY_MAX_S = 0.25, 10
START_MAX_S = 60      # to its address; MySQL may be slow
END_PATIENCE_S = 8    # it answers its requests first
FEED_S = 30           # for an answer, of an instance that is stopped
FEED_RETRY_S = 0.25
CLIENTS_RETRY_S = 1   # clients that have ended by themselves
CLIENTS_SETTLE_S = 0.3  # between restarts, while a slider moves

HOTTEST_ITEM = 42     # as in traffic.lua
ABSENT = 2000         # ids of absent items that a lane is asked for
ABSENT_CONNECTIONS = 32

# A breaker opens while one looks.
BREAKERS = ("--breaker-min-loads", "10", "--redis-breaker-min-calls", "10",
            "--redis-breaker-window-ms", "1000")


class State(enum.Enum):
    DOWN = 1      # it is started at retry_s
    STARTING = 2  # it has not printed its address
    UP = 3


class Instance:
    """One process of the service after another, and the clients that ask it."""

    def __init__(self, lane, number, log):
        self.lane, self.number, self.log = lane, number, log
        # written under the stage's lock
        self.state, self.since_s = State.DOWN, 0
        self.process = None
        self.port = 0
        self.retry_s = 0
        self.failures = 0  # in a row
        self.starts = 0
        self.sample = None  # the newest of this process
        # main thread only
        self.reader = None
        self.last_line = ""  # of what is no address: it may say why the start fails
        self.clients, self.clients_made, self.clients_retry_s = None, None, 0
        self.absent, self.absent_made = None, 0

    def is_up(self):
        return self.state is State.UP

    def wanted(self, item):
        """How often it was wanted of late."""
        return sum(hot["wanted"] for hot in (self.sample or {"hot": []})["hot"]
                   if hot["id"] == item)


class Lanes:
    def __init__(self, stage):
        self.stage, self.options = stage, stage.options
        self.observe = lambda instance, sample: None  # called with each, under the lock
        # under the lock
        self.traffic = {"clients": self.options.clients, "skew": self.options.skew}
        self.absent_wanted = 0  # how often the button was pressed
        self.is_warm = False    # there may be clients
        self.instances = [Instance(lane, number, self.open_log(lane, number))
                          for lane in LANES for number in range(self.options.instances)]

    def open_log(self, lane, number):
        """One file for an instance and its successors."""
        if self.options.logs is None:
            return None
        return open(os.path.join(self.options.logs, f"{lane}-{number}.log"), "ab", buffering=0)

    # ------------------------------------------------------------- questions

    def are_up(self):
        with self.stage.changed:
            return all(it.is_up() for it in self.instances)

    def of(self, lane):
        """The instances of a lane that are up."""
        with self.stage.changed:
            return [it for it in self.instances if it.lane == lane and it.is_up()]

    def port(self, lane):
        """Of an instance that is up; 0 without one."""
        return next((it.port for it in self.of(lane)), 0)

    def hottest(self):
        """The most wanted item, by all instances' counts."""
        with self.stage.changed:
            ids = {hot["id"] for it in self.instances if it.sample for hot in it.sample["hot"]
                   if hot["id"] <= self.options.items}
            return max(ids, default=HOTTEST_ITEM, key=lambda item: (
                sum(it.wanted(item) for it in self.instances), item == HOTTEST_ITEM))

    def describe(self):
        with self.stage.changed:
            return [{"name": lane, "instances": [{"port": it.port, "pid": it.process.pid}
                                                 for it in self.of(lane)]} for lane in LANES]

    def kill(self, lane, pid=None):
        """SIGKILL to an instance that is up: this process, or the first. Returns its process
        id, or None if there is no such instance."""
        with self.stage.changed:
            for it in self.of(lane):
                if pid in (None, it.process.pid) and it.process.poll() is None:
                    it.process.kill()
                    return it.process.pid
        return None

    # ----------------------------------------------------------------- start

    def set_state(self, it, state):
        with self.stage.changed:
            it.state, it.since_s = state, time.monotonic()
            self.stage.changed.notify_all()

    def start(self, it):
        argv = [self.options.hotitems, "--redis", self.options.redis, "--mysql",
                self.options.mysql, "--lane", it.lane, "--work", *BREAKERS]
        for name in PASSED_ON:
            argv += ["--" + name, str(getattr(self.options, name.replace("-", "_")))]
        with self.stage.changed:
            it.process = start(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            it.starts += 1
            self.set_state(it, State.STARTING)
        it.reader = threading.Thread(target=self.read, args=(it, it.process), daemon=True)
        it.reader.start()

    def read(self, it, process):
        """On a thread: its output, which is its address and then its log."""
        with process.stdout:
            for line in process.stdout:
                if it.log:
                    it.log.write(line)
                found = re.fullmatch(rb"http://127\.0\.0\.1:(\d+)\n", line)
                if found and it.port == 0:
                    self.greet(it, process, int(found[1]))
                elif it.port == 0:
                    it.last_line = line.decode(errors="replace").strip()
        self.stage.wake()

    def greet(self, it, process, port):
        with self.stage.changed:
            it.port = port
            self.set_state(it, State.UP)
        threading.Thread(target=self.follow, args=(it, process, port), daemon=True).start()
        self.stage.tell_lanes()
        if it.starts > 1:
            self.stage.hub.mark("restart", f"an instance of {it.lane} is back")
        self.stage.wake()

    # --------------------------------------------------------------- samples

    def follow(self, it, process, port):
        """On a thread: pass on each sample of an instance, until that has ended."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=FEED_S)
        newest_ms = 0
        while process.poll() is None and not self.stage.is_ending:
            try:
                connection.request("GET", f"/sample?after={newest_ms}")
                answer = connection.getresponse()
                sample = json.loads(answer.read())
                if answer.status != 200:
                    raise ValueError(sample)  # there is none yet
            except (OSError, ValueError, http.client.HTTPException):
                connection.close()
                time.sleep(FEED_RETRY_S)
                continue
            if sample["time_ms"] > newest_ms:
                newest_ms = sample["time_ms"]
                self.take(it, process, sample)
        connection.close()

    def take(self, it, process, sample):
        with self.stage.changed:
            if it.process is process:
                self.observe(it, sample)
                it.sample = sample
            self.stage.changed.notify_all()
        self.stage.hub.tell("sample", sample)

    # ------------------------------------------------------------------- end

    def note_end(self, it):
        """Exits if it has never been up: a new one would fail as well."""
        it.reader.join()  # its last words
        for clients in it.clients, it.absent:
            if clients:
                clients.kill()
        was_up = it.is_up()
        with self.stage.changed:
            if was_up and time.monotonic() - it.since_s >= STABLE_S:
                it.failures = 0
            pause_s = min(RETRY_S * 2 ** (it.failures - 1), RETRY_MAX_S) if it.failures else 0
            it.retry_s = time.monotonic() + pause_s
            it.failures += 1
            status, it.process, it.port, it.sample = it.process.returncode, None, 0, None
            self.set_state(it, State.DOWN)
        self.stage.tell_lanes()
        if not was_up and it.starts == 1:
            sys.exit(f"stage: {self.options.hotitems} --lane {it.lane} ended with status "
                     f"{status} before it could serve: {it.last_line}")

    # ---------------------------------------------------------------- clients

    def share(self, it, count):
        """An instance's part of what is set for its lane."""
        each = self.options.instances
        return count // each + (it.number < count % each)

    def start_wrk(self, it, connections, duration, *script):
        """wrk ends with its instance, because it tries without a pause to connect to one
        that is gone."""
        return start(["wrk", "--threads", "1", "--connections", str(connections), "--duration",
                      duration, "--timeout", "60s", "--script",
                      os.path.join(HERE, "traffic.lua"), f"http://127.0.0.1:{it.port}/", "--",
                      *map(str, script)],
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def tick_absent(self, it):
        if it.absent and it.absent.poll() is not None:
            it.absent = None
        if it.absent or it.absent_made == self.absent_wanted or not it.is_up():
            return
        it.absent_made = self.absent_wanted
        # ids that nobody has asked for before: the time, the instance, a number
        it.absent = self.start_wrk(it, ABSENT_CONNECTIONS, "30s", "absent",
                                   self.share(it, ABSENT), f"{now_ms()}{it.number}")

    def tick_clients(self, it):
        traffic = self.traffic  # replaced, never changed
        count = self.share(it, traffic["clients"]) if self.is_warm else 0
        if it.clients and it.clients_made is not traffic:
            it.clients.kill()
        if it.clients and it.clients.poll() is not None:
            it.clients = None
        now_s = time.monotonic()
        if it.clients or not it.is_up() or count == 0 or now_s < it.clients_retry_s:
            return
        it.clients_retry_s = now_s + (CLIENTS_RETRY_S if it.clients_made is traffic
                                      else CLIENTS_SETTLE_S)
        it.clients_made = traffic
        # The n-th instance of each lane is asked for the same items.
        it.clients = self.start_wrk(it, count, "24h", "items", f"{traffic['skew']:.3f}",
                                    self.options.think_ms, 1 + it.number + it.starts * 16,
                                    self.options.items)

    # ------------------------------------------------------------------- loop

    def tick(self):
        """Main thread: start what is due, and notice what has ended."""
        for it in self.instances:
            if it.process and it.process.poll() is not None:
                self.note_end(it)
            elif it.state is State.STARTING and time.monotonic() > it.since_s + START_MAX_S:
                it.process.kill()
            if it.process is None and time.monotonic() >= it.retry_s:
                self.start(it)
            self.tick_absent(it)
            self.tick_clients(it)

    def end(self):
        """Main thread."""
        processes = [p for it in self.instances for p in (it.clients, it.absent, it.process)
                     if p and p.poll() is None]
        end_all(processes, END_PATIENCE_S)
