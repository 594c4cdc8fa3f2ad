"""The processes that sell, and what they say: see seller.h. They share one pipe, so that
their lines come in the order in which things happened."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

from talk import Failure, Redis, sql

END_S = 60     # for a process to end by itself
LOOK_S = 0.005 # between two looks at what is due


def prepare(options, files, *statements):
    """Empty the tables of a scene, and see that the servers are there."""
    Redis(options.redis, 10).close()
    try:
        for statement in ("SELECT 1 FROM snowshed_fence LIMIT 0", *statements):
            sql(options.mysql, statement)
    except Failure as failure:
        raise Failure(502, f"{failure} (load {files})") from failure


def progress(text):
    """One line on a terminal, which the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class Process:
    def __init__(self, popen):
        self.popen = popen
        self.serving = set()  # the ids of its buyers; under the crowd's lock


class Crowd:
    """hear(process, id, words) is called for each line, under the lock of `changed`."""

    def __init__(self, options, item, hear):
        self.options, self.item, self.hear = options, item, hear
        self.changed = threading.Condition()
        self.failure = ""  # the first
        self.processes, self.by_id, self.synced = [], {}, 0
        self.begun = time.monotonic()
        reading, self.writing = os.pipe()
        self.lines = os.fdopen(reading, encoding="utf-8", errors="replace")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.lines:
            number, *words = line.split(" ", 2)
            words = [word.strip() for word in words]
            with self.changed:
                if words[0] == "failed":
                    self.failure = self.failure or " ".join(words[1:])
                elif words[0] == "synced":
                    self.synced += 1
                else:
                    self.hear(self.by_id.get(int(number)), int(number), words)
                self.changed.notify_all()

    def start(self, way, threads):
        """Main thread only: the process ends with it."""
        process = Process(subprocess.Popen(
            [self.options.seller, way, self.options.redis, self.options.mysql, str(self.item),
             str(threads)], stdin=subprocess.PIPE, stdout=self.writing, text=True, bufsize=1,
            start_new_session=True))
        self.processes.append(process)
        return process

    def give(self, process, number, *words):
        """Let a process serve a buyer. Under the lock."""
        process.serving.add(number)
        self.by_id[number] = process
        self.send(process, number, *words)

    @staticmethod
    def send(process, *words):
        try:
            print(*words, file=process.popen.stdin, flush=True)
        except BrokenPipeError:
            pass  # it was killed

    def told(self, process, number):
        process.serving.discard(number)

    def kill(self, process):
        """Returns the ids of the buyers that it was serving, once all that it has said was
        heard, and whether it was alive."""
        process.popen.kill()
        was_alive = process.popen.wait() == -signal.SIGKILL
        with self.changed:
            due = self.synced + 1
            os.write(self.writing, b"0 synced\n")
            self.changed.wait_for(lambda: self.synced >= due)
            self.processes.remove(process)
            return set(process.serving), was_alive

    def wait_for(self, condition, for_s):
        """Whether it came true in time, and nothing failed."""
        with self.changed:
            self.changed.wait_for(lambda: condition() or self.failure, for_s)
            return bool(condition()) and not self.failure

    def run(self, is_over, count, patience_s, tick):
        """Until all is over; call tick on the way. Fails if the count does not change for too
        long."""
        seen, moved = count(), time.monotonic()
        while not is_over() and not self.failure:
            tick()
            with self.changed:
                self.changed.wait_for(lambda: is_over() or self.failure, LOOK_S)
            if count() != seen:
                seen, moved = count(), time.monotonic()
            elif time.monotonic() > moved + patience_s:
                self.failure = "no buyer was answered for too long"

    def end(self):
        """Let all processes end, and hear what they said last."""
        for process in self.processes:
            process.popen.send_signal(signal.SIGCONT)
            process.popen.stdin.close()
        deadline = time.monotonic() + END_S
        for process in self.processes:
            try:
                process.popen.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.popen.kill()
                process.popen.wait()
                self.failure = self.failure or "a process had to be killed"
        os.close(self.writing)
        self.reader.join()
        self.lines.close()


class Kills:
    """Due when certain parts of what is sold are sold, whatever the speed of the host, so
    that they come while something is left."""

    def __init__(self, count, things, spread_s, seed):
        self.random = random.Random(seed)
        self.due = sorted(self.random.randrange(things) for _ in range(count))
        self.spread_s = spread_s
        self.count = 0  # of processes that did not end by themselves

    def is_due(self, sold):
        if not self.due or sold < self.due[0]:
            return False
        self.due.pop(0)
        return True

    def one(self, crowd):
        """Kill one, at any moment of a purchase. Returns the buyers that it was serving."""
        time.sleep(self.random.uniform(0, self.spread_s))
        buyers, was_alive = crowd.kill(self.random.choice(crowd.processes))
        self.count += was_alive
        return buyers
