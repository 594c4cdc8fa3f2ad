"""The two servers, which buttons may stop or kill: the processes that the options name,
and those that the stage starts in their places, by the command line of the first one. A
server that has ended is started again by itself after a while. What was started here
ends with the stage.

The main thread starts and watches them, because a child ends with the thread that
started it."""

import enum
import os
import select
import signal
import subprocess
import time

from talk import Failure, Redis, end_all, sql, start

STOP_S = 5
FAILED_START_S = 1
PROBE_S = 0.1        # between two questions, and for an answer
END_PATIENCE_S = 8
DONE_MAX_S = 10      # until the main thread has done it
START_MAX_S = 30     # until the server answers; it may have to recover

# It lets the process continue after a while, when it is told to, and when the stage has
# ended: then its input ends.
KEEPER = 'read -rt "$1"; kill -CONT "$0"'


class State(enum.Enum):
    UP = 1        # for all that is known
    STOPPED = 2   # by SIGSTOP; the keeper lets it continue
    DOWN = 3      # it has ended, and is started at due_s
    STARTING = 4  # it does not answer yet


class Server:
    def __init__(self, stage, name, pid, back, answers):
        self.stage, self.name, self.given, self.back = stage, name, pid, back
        self.answers = answers  # fails if it does not
        self.pidfd, self.argv = None, []
        if pid:
            self.look_at(pid)
        # main thread only
        self.process = None  # what was started in its place
        self.keeper = None
        self.probe_s = 0
        # under the stage's lock
        self.state = State.UP
        self.due_s = 0
        self.starts = 0
        self.wants_stop = False

    def look_at(self, pid):
        """A server that has changed its title has one word, which is no program's path."""
        try:
            self.pidfd = os.pidfd_open(pid)
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as words:
                argv = words.read().rstrip("\0").split("\0")
        except OSError:
            return
        if os.access(argv[0], os.X_OK):
            self.argv = argv

    def is_down(self):
        return self.state in (State.DOWN, State.STARTING)

    def pid(self):
        """The process that is the server now; None: there is none."""
        if self.starts > 0:
            return self.process.pid if self.process else None
        return None if self.state is State.DOWN else self.given

    # ------------------------------------------------------------ for buttons

    def must_be_up(self):
        if self.state is State.STOPPED:
            raise Failure(503, f"{self.name} is stopped; continue it first")
        if self.state is not State.UP:
            raise Failure(503, f"{self.name} is down; start it first")

    def may_end(self):
        if not self.given:
            raise Failure(409, f"{self.name} cannot be ended: its process is not known: start "
                          "the stage with --redis-pid and --db-pid")
        if not self.argv:
            raise Failure(409, f"{self.name} cannot be ended: its command line cannot be read, "
                          "so it could not be started again; Redis needs --set-proc-title no")

    def wait_for(self, state, for_s):
        """Whether it is in that state in time."""
        self.stage.wake()
        with self.stage.changed:
            self.stage.changed.wait_for(lambda: self.state is state or self.stage.is_ending,
                                        for_s)
            return self.state is state

    def stop(self, wants_stop):
        """For a while; or let it continue."""
        if not self.given:
            raise Failure(409, f"this stage may not stop {self.name}: start it with --redis-pid")
        if self.is_down():
            self.must_be_up()
        self.wants_stop = wants_stop
        if not self.wait_for(State.STOPPED if wants_stop else State.UP, DONE_MAX_S):
            raise Failure(500, f"the process of {self.name} cannot be signalled")

    def kill(self):
        self.may_end()
        with self.stage.changed:
            if self.pid():
                os.kill(self.pid(), signal.SIGKILL)
        self.await_end()

    def await_end(self):
        if not self.wait_for(State.DOWN, DONE_MAX_S):
            raise Failure(500, f"{self.name} does not end")

    def start_now(self):
        self.may_end()
        self.due_s = 0
        if not self.wait_for(State.UP, START_MAX_S):
            raise Failure(502, f"{self.name} does not answer yet")

    # ------------------------------------------------------------ main thread

    def set_state(self, state):
        with self.stage.changed:
            self.state = state
            self.stage.changed.notify_all()
        self.stage.tell_lanes()

    def note_stop(self, is_stopped):
        self.set_state(State.STOPPED if is_stopped else State.UP)
        self.stage.hub.mark("stop-redis" if is_stopped else "continue-redis",
                            f"{self.name} " + ("is stopped" if is_stopped else "continues"))

    def tick_stop(self):
        if self.keeper and self.state is State.STOPPED and not self.wants_stop:
            self.keeper.stdin.close()
        if self.keeper and self.keeper.poll() is not None:
            self.keeper = None
            self.wants_stop = False
            if self.state is State.STOPPED:
                self.note_stop(False)
        if self.wants_stop and not self.keeper and self.state is State.UP and self.exists():
            self.keeper = subprocess.Popen(
                ["bash", "-c", KEEPER, str(self.pid()), str(STOP_S)], stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL, start_new_session=True)
            os.kill(self.pid(), signal.SIGSTOP)
            self.note_stop(True)

    def exists(self):
        try:
            os.kill(self.pid(), 0)
            return True
        except OSError:
            return False

    def has_ended(self):
        """A zombie, whose parent has not looked, has ended, too."""
        if self.starts > 0:
            return self.process is not None and self.process.poll() is not None
        return bool(select.select([self.pidfd], [], [], 0)[0])

    def watch_end(self):
        with self.stage.changed:
            if self.state is State.DOWN or not self.argv or not self.has_ended():
                return
            self.due_s = time.monotonic() + (FAILED_START_S if self.state is State.STARTING
                                             else self.stage.options.outage_s)
            self.process = None
            self.wants_stop = False
            if self.keeper:
                self.keeper.stdin.close()
        self.set_state(State.DOWN)

    def more_arguments(self):
        return []

    def start(self):
        with self.stage.changed:
            self.process = start([*self.argv, *self.more_arguments()],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.starts += 1
        self.set_state(State.STARTING)

    def watch_start(self):
        if time.monotonic() < self.probe_s:
            return
        try:
            self.answers()
            self.stage.hub.mark(self.back, f"{self.name} is back")
            self.set_state(State.UP)
        except Failure:
            self.probe_s = time.monotonic() + PROBE_S

    def tick(self):
        self.tick_stop()
        self.watch_end()
        if self.state is State.DOWN and time.monotonic() >= self.due_s:
            self.start()
        if self.state is State.STARTING:
            self.watch_start()

    def let_continue(self):
        if self.keeper:
            self.keeper.stdin.close()
            self.keeper.wait()

    def end(self):
        if self.process:
            end_all([self.process], END_PATIENCE_S)


class RedisServer(Server):
    def __init__(self, stage, name, uri, pid, back):
        super().__init__(stage, name, pid, back, self.ping)
        self.uri = uri
        self.keeps_data = False  # until it is up again: it has saved them
        self.file = None         # which it loads; None: the first one's

    def ping(self):
        redis = Redis(self.uri, PROBE_S)
        try:
            redis.ask("PING")
        finally:
            redis.close()

    def more_arguments(self):
        """The file that the last one has saved, or one that nobody has."""
        if not self.keeps_data:
            self.file = f"stage-{os.getpid()}-{self.starts}.rdb"
        return ["--dbfilename", self.file] if self.file else []

    def set_state(self, state):
        if state is State.UP:
            self.keeps_data = False
        super().set_state(state)


class DatabaseServer(Server):
    def __init__(self, stage):
        super().__init__(stage, "the database", stage.options.db_pid, "db-up",
                         lambda: sql(stage.options.mysql, "SELECT 1"))
