"""An nginx with the module of demo/nginx, for its test and its benchmark: unprivileged,
in a directory of its own, on a port of 127.0.0.1, and gone with its program."""

import collections
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile

from hotitems_testing import MYSQL, PATIENCE_S, wait_for

# Each query is noted in a table once, whatever the number of its rows.
COUNTED_QUERY = ("SELECT id, JSON_OBJECT('name', name, 'price_cents', price_cents) "
                 "FROM (SELECT nginx_note() AS done) AS note JOIN item ON item.id IN (?)")
COUNT = """DROP FUNCTION IF EXISTS nginx_note; DROP TABLE IF EXISTS nginx_noted;
CREATE TABLE nginx_noted (n BIGINT AUTO_INCREMENT PRIMARY KEY);
DELIMITER //
CREATE FUNCTION nginx_note() RETURNS INT MODIFIES SQL DATA
BEGIN INSERT INTO nginx_noted VALUES (); RETURN 1; END //
"""

CONF = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log info;
worker_processes 2;
user {user};
load_module {module};
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {http}
    server {{
        listen 127.0.0.1:{port} reuseport;
        add_header X-Worker $pid always;
        location = /status {{ stub_status; }}
        {server}
    }}
}}
"""

SNOWSHED = """snowshed_redis "{redis}";
    snowshed_mysql "{mysql}";
    snowshed_query "{query}";
    snowshed_cache nginx-item;
"""

Answer = collections.namedtuple("Answer", "status headers body")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Nginx:
    """A master process and two workers. directives go into the http block, or
    http_block is all of it."""

    def __init__(self, module, redis, directives="", server="", http_block="",
                 query=COUNTED_QUERY):
        self.folder = tempfile.mkdtemp(prefix="snowshed-nginx.")
        self.port = free_port()
        known = {"redis": redis, "mysql": MYSQL, "query": query}
        with open(self.path("nginx.conf"), "w", encoding="utf-8") as conf:
            conf.write(CONF.format(
                folder=self.folder, port=self.port, module=module,
                user="root" if os.geteuid() == 0 else "nobody",
                http=http_block.format(folder=self.folder) or
                SNOWSHED.format(**known) + directives,
                server=server or "location /items/ { snowshed_items; }"))
        self.command = [shutil.which("nginx") or "/usr/sbin/nginx", "-e",
                        self.path("error.log"), "-p", self.folder, "-c",
                        self.path("nginx.conf")]
        self.process = None

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self):
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *self.command], stderr=subprocess.DEVNULL)
        wait_for(lambda: self.answers() or self.process.poll() is not None, "nginx answers")
        if self.process.poll() is not None:
            raise AssertionError("nginx does not start:\n" + self.log())
        return self

    def answers(self):
        try:
            return self.get("/status").status == 200
        except OSError:
            return False

    def log(self):
        with open(self.path("error.log"), encoding="utf-8", errors="replace") as log:
            return log.read()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def ask(self, method, path, connection=None, **headers):
        c = connection or self.connect()
        c.request(method, path, None, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = c.getresponse()
        data = answer.read()
        if connection is None:
            c.close()
        return Answer(answer.status, answer.headers, data)

    def get(self, path, connection=None, **headers):
        return self.ask("GET", path, connection, **headers)

    def under_way(self):
        """The requests that are being answered, but for the one that asks."""
        return int(re.search(rb"Writing: (\d+)", self.get("/status").body)[1]) - 1

    def end(self, how=signal.SIGQUIT):
        """Returns: the exit status, and what the log complains of."""
        status, log = None, ""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(how)
            status = self.process.wait(PATIENCE_S)
            log = self.log()
        shutil.rmtree(self.folder, ignore_errors=True)
        return status, re.findall(r".*(?:\[alert\]|\[emerg\]|on signal).*", log)
