"""What the stage answers over HTTP, at 127.0.0.1 only: the page, and what it asks for. A
button does harm: a foreign page cannot make a browser send JSON unasked, nor its request
with our host's name, or with a foreign Origin unseen."""

import http.server
import json
import os
import re
import sys
import urllib.parse

from hub import now_ms
from lanes import CLIENTS_MAX, LANES, SKEW_MAX
from options import HERE
from talk import Failure
from buttons import key, lock_key

BODY_MAX_BYTES = 4096
TAKING_S = 15       # a client that takes nothing for this long is left
TOOL_S = 2          # the command-line tool answers by then
POLICY = ("default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'")
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def understand(parse, text):
    """What a client has sent, parsed."""
    try:
        return parse(text)
    except ValueError as error:
        raise Failure(400, f"it cannot be understood: {error}") from error


def load_page(chart_js):
    """The files of the page by path: what a browser has to be told, and their bytes."""
    folder, files = os.path.join(HERE, "page"), {}
    for path, file in [("/chart.js", chart_js), *(("/" + name, os.path.join(folder, name))
                                                  for name in os.listdir(folder))]:
        try:
            with open(file, "rb") as stream:
                data = stream.read()
        except OSError as error:
            sys.exit(f"stage: {error} (Debian's package of Chart.js is libjs-chart.js)")
        kind = TYPES[path.rpartition(".")[2]] + "; charset=utf-8"
        files["/" if path == "/index.html" else path] = kind, data
    return files


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection, on a thread of its own."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = TAKING_S
    stage, page = None, {}

    def log_message(self, *_):
        pass

    # --------------------------------------------------------------- answers

    def reply(self, status, kind, data, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(data),
                            "Content-Security-Policy": POLICY, **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def reply_json(self, status, data, **headers):
        self.reply(status, "application/json", json.dumps(data).encode(), **headers)

    def refuse(self, status, why, **headers):
        """What the client may still send is not read."""
        self.close_connection = True
        self.reply_json(status, {"error": why}, Connection="close", **headers)

    # ---------------------------------------------------------------- routes

    def get_file(self, path):
        self.reply(200, *self.page[path])

    def get_lanes(self):
        self.reply_json(200, self.stage.describe())

    def get_events(self):
        self.close_connection = True
        self.send_response(200)
        for header in (("Content-Type", "text/event-stream"), ("Cache-Control", "no-store"),
                       ("Content-Security-Policy", POLICY), ("Connection", "close")):
            self.send_header(*header)
        self.end_headers()
        for text in self.stage.hub.listen() if self.command != "HEAD" else ():
            self.wfile.write(text.encode())

    def get_entry(self):
        """What Redis has of an item in a lane; decoded by the tool for the lane snowshed."""
        asked = understand(urllib.parse.parse_qs, urllib.parse.urlsplit(self.path).query)
        lane, item = asked.get("lane", [""])[0], asked.get("id", [""])[0]
        if lane not in LANES or not re.fullmatch(r"[0-9]{1,19}", item):
            self.refuse(400, "give lane=none, setnx or snowshed, and id=NUMBER")
        elif lane == "snowshed":
            entry = self.stage.ask_tool(item)
            if entry is None:
                self.refuse(502, f"{self.stage.options.snowshed} cannot be run, or says nothing")
            elif "error" in entry:  # Redis is down: that is what a page asks to see
                self.reply_json(200, {"error": entry["error"]})
            else:
                self.reply_json(200, {"entry": entry})
        else:
            try:
                self.reply_json(200, self.look_at(lane, item))
            except Failure as failure:
                self.reply_json(200, {"error": str(failure)})

    def look_at(self, lane, item):
        """Times are negative as PTTL has it."""
        with self.stage.redis.connect() as redis:
            ttl_ms, size, lock_ms = redis.ask_all([
                ("PTTL", key(lane, item)), ("STRLEN", key(lane, item)), ("PTTL", lock_key(item))])
        if None in (ttl_ms, lock_ms):
            raise Failure(502, "the primary that has it is down")
        return {"ttl_ms": ttl_ms, "size": size, "lock_ms": lock_ms if lane == "setnx" else -2}

    def post_action(self, name):
        self.reply_json(200, {"text": self.stage.buttons.press(name)})

    def post_traffic(self, body):
        """Both values, or one of them."""
        try:
            traffic = {**self.stage.lanes.traffic, **json.loads(body)}
            clients, skew = traffic.pop("clients"), traffic.pop("skew")
            if traffic or type(clients) is not int or type(skew) not in (int, float):
                raise ValueError("wrong names or kinds of values")
        except (TypeError, ValueError, RecursionError) as error:
            self.refuse(400, f'the body must be {{"clients": n, "skew": x}}: {error}')
            return
        if not 0 <= clients <= CLIENTS_MAX:
            self.refuse(400, f"clients must be a number from 0 to {CLIENTS_MAX}")
        elif not 0 <= skew <= SKEW_MAX:
            self.refuse(400, f"skew must be a number from 0 to {SKEW_MAX}")
        else:
            time_ms = now_ms()
            self.stage.lanes.traffic = {"clients": clients, "skew": float(skew)}
            self.stage.wake()
            self.stage.hub.mark("traffic", f"{clients} clients for each lane, skew {skew:.2f}",
                                time_ms)
            self.stage.tell_lanes()
            self.reply_json(200, self.stage.lanes.traffic)

    # -------------------------------------------------------------- requests

    def is_ours(self):
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if not re.fullmatch(r"(127\.0\.0\.1|localhost)(:\d+)?", host, re.IGNORECASE):
            self.refuse(403, f"ask 127.0.0.1 or localhost, not '{host:.60}'")
        elif origin not in (None, "http://" + host):
            self.refuse(403, "a page of another origin may not ask")
        else:
            return True
        return False

    def read_body(self):
        """None: it is refused."""
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        size = self.headers.get("Content-Length", "")
        if kind != "application/json":
            self.refuse(415, "Content-Type must be application/json")
        elif not size.isdigit() or understand(int, size) > BODY_MAX_BYTES:
            self.refuse(413, f"the body must have a length, of at most {BODY_MAX_BYTES} bytes")
        else:
            return self.rfile.read(int(size))
        return None

    def answer(self):
        if not self.is_ours():
            return
        path = understand(urllib.parse.urlsplit, self.path).path
        gets = {"/lanes": self.get_lanes, "/events": self.get_events, "/entry": self.get_entry,
                **{name: lambda: self.get_file(path) for name in self.page}}
        is_get = self.command in ("GET", "HEAD")
        body = b"" if self.command != "POST" else self.read_body()
        if body is None:
            return
        if is_get and path in gets:
            gets[path]()
        elif self.command == "POST" and path.startswith("/actions/"):
            self.post_action(path[len("/actions/"):])
        elif self.command == "POST" and path == "/traffic":
            self.post_traffic(body)
        elif path in gets or path.startswith("/actions/") or path == "/traffic":
            allow = "GET, HEAD" if path in gets else "POST"
            self.refuse(405, f"{path} takes {allow}", Allow=allow)
        else:
            self.refuse(404, f"there is nothing at '{path:.60}'")

    def do_GET(self):
        try:
            self.answer()
        except Failure as failure:
            self.refuse(failure.status, str(failure))

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, stage):
        Handler.stage, Handler.page = stage, load_page(stage.options.chart_js)
        super().__init__(("127.0.0.1", stage.options.port), Handler)

    def handle_error(self, *arguments):
        """A browser may close a connection at any time."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(*arguments)
