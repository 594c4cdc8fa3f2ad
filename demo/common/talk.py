"""Talking to what a script has started or was given: programs, Redis, the database, and
the web service over HTTP."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import urllib.parse

SQL_S = 20  # a statement that takes longer has failed
MOVED = object()  # a reply: another node of the cluster has the key


class Failure(Exception):
    """What was asked for cannot be done: the status of an HTTP answer, and why."""

    def __init__(self, status, why):
        super().__init__(why)
        self.status = status


# ---------------------------------------------------------------- programs

def start(argv, **others):
    """Start a program that the kernel kills when the script ends, however it does. Main
    thread only: it is the end of the thread that counts. Ctrl-C does not reach it."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv],
                            stdin=subprocess.DEVNULL, start_new_session=True, **others)


def end_all(processes, patience_s):
    """SIGTERM to all, and SIGKILL to those that take longer than this together."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            patience_s = 0
            process.kill()
            process.wait()


# ------------------------------------------------------------------- Redis

class Redis:
    """A connection, to be closed after any failure."""

    def __init__(self, uri, timeout_s):
        try:
            self.open(uri, timeout_s)
        except (OSError, ValueError) as error:
            raise Failure(502, f"Redis: {error}; is it running?") from error

    def open(self, uri, timeout_s):
        if uri.startswith("unix:"):
            path, _, db = uri[len("unix:"):].partition("?db=")
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout_s)
            self.socket.connect("/" + path.lstrip("/"))
            user = password = None
        else:
            at = urllib.parse.urlsplit(uri)
            db, user, password = at.path.lstrip("/"), at.username, at.password
            self.socket = socket.create_connection((at.hostname, at.port or 6379), timeout_s)
        self.replies = self.socket.makefile("rb")
        if password:
            self.ask("AUTH", user or "default", password)
        self.ask("SELECT", db or 0)

    def close(self):
        self.replies.close()
        self.socket.close()

    def ask(self, *command):
        return self.ask_all([command])[0]

    def ask_all(self, commands):
        """The replies to all of them, which are sent at once."""
        try:
            self.socket.sendall(b"".join(map(self.format, commands)))
            return [self.read() for _ in commands]
        except OSError as error:
            raise Failure(502, f"Redis: {error}") from error

    @staticmethod
    def format(command):
        words = [str(word).encode() for word in command]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)

    def read(self):
        """A status, a number or a string; these are all that the stage asks for."""
        line = self.replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the connection has ended")
        kind, text = line[:1], line[1:-2].decode()
        if text.startswith("MOVED "):
            return MOVED
        if kind == b"-":
            raise Failure(502, "Redis: " + text)
        if kind == b"$":
            return None if text == "-1" else self.replies.read(int(text) + 2)[:-2].decode()
        return int(text) if kind == b":" else text


# ---------------------------------------------------------------- database

def sql(uri, statements):
    """Run statements with the database's own client. Returns the rows as lists of texts."""
    at = urllib.parse.urlsplit(uri)
    place = urllib.parse.parse_qs(at.query)
    argv = [shutil.which("mariadb") or "mysql", "--no-defaults", "--batch",
            "--skip-column-names", "--database", at.path[1:], "--execute", statements]
    for option, value in (("--user", at.username), ("--host", at.hostname), ("--port", at.port),
                          ("--socket", place.get("socket", [None])[0])):
        argv += [option, str(value)] if value else []
    # The password is passed in the environment: command lines are public.
    try:
        done = subprocess.run(argv, env={**os.environ, "MYSQL_PWD": at.password or ""},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=SQL_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(502, f"MySQL: {error}") from error
    if done.returncode != 0:
        raise Failure(502, "MySQL: " + done.stderr.strip())
    return [line.split("\t") for line in done.stdout.splitlines()]


# --------------------------------------------------------------- instances

def ask(port, method, path, body=None, timeout_s=10):
    """The status and the JSON of an instance's answer; (0, None) without a whole one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()


ITEMS_MAX = 100  # hotitems takes no more at once


def ask_items(port, method, path, ids, timeout_s=10):
    """The status of the answer to path, which ends with "ids="."""
    return ask(port, method, path + ",".join(map(str, ids)), timeout_s=timeout_s)[0]
