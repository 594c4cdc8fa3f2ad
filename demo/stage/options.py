"""The options of the stage, from stage.def: demo/run checks them by that table, too."""

import os

import table

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, os.pardir, os.pardir, "build", "demo")

HELP = """\
usage: stage --redis URI --mysql URI [OPTION...]

Three lanes of the service hotitems under the same traffic: without protection,
with a SETNX lock, and with snowshed. Serves a page on 127.0.0.1 that shows them
and has buttons that make trouble. Its first line of output is its address.
SIGTERM or Ctrl-C ends it, and all that it started.

  --redis URI          redis://[user:password@]host[:port][/db] or
                       unix:/path[?db=n]. A button EMPTIES THAT DATABASE.
                       Or, with --redis-nodes, redis+cluster://host:port or
                       redis+sentinel://host:port,host:port/name
  --redis-nodes LIST   the URIs of all servers of that cluster, or of the primary
                       and its replicas
  --mysql URI          mysql://user[:password]@host[:port]/database or
                       mysql://user@/database?socket=/path, with the tables of
                       schema, items, fence, hotitems and capacity in sql/
  --port N             of the page; default 0: any that is free
  --clients N          for each lane (default 200); the page has a slider
  --skew X             of the Zipf distribution of items (default 1.0)
  --think-ms N         mean pause of a client between requests (default 150)
  --items N            items that are asked for (default 2000)
  --instances N        processes for each lane, 1 to 4 (default 2)
  --db-slots N         queries that a lane's database executes at a time
                       (default 16); the others queue in the server
  --db-cost-ms N       how long it executes a query (default 150)
  --redis-pid N        the process of Redis, which buttons may stop for 5 s, or
                       kill; default 0: they may not. What is started in its
                       place ends with this program. With --redis-nodes a list,
                       in the same order
  --db-pid N           the same for the database
  --outage-s N         a killed server is started again after this time, if no
                       button has done it (default 20)
  --tour SECONDS       run unattended this long, with an expiry, a kill and a
                       change of a price, and print a table; 0: run until it
                       is ended (default)
  --hotitems PATH      the service; default: build/demo/demo/hotitems
  --snowshed PATH      the command-line tool; default: of that build, or in PATH
  --chart-js PATH      Chart.js, for the page; default: where Debian's package
                       libjs-chart.js puts it
  --logs DIR           write the instances' access logs there: LANE-NUMBER.log
  --timeout-ms N       the instances' options (see hotitems --help): default
  --ttl-ms N           2000, 3600000 (an hour, so that nothing expires unless
  --connections N      a button is pressed), 600, 16 and 64
  --db-connections N
  --read-connections N
  --loads N            those of the lane snowshed: default 16, ...
  --adaptive-loads N   1, because two instances with 16 each are too many, ...
  --refresh-after-pct N 50, ...
  --stale-ms N         60000, ...
  --soft-timeout-ms N  200, ...
  --stale-if-error-ms N
                       3600000, which is an hour, ...
  --breaker-failure-pct N, --redis-breaker-failure-pct N
                       50 and 50
  --breaker-open-ms N  400
  --help               this text

Exit status: 0; 1 if it cannot start, or an instance cannot; 2 for a wrong
option.
"""

# What is passed on to the instances, by the same name.
PASSED_ON = {
    "timeout-ms": 2000, "ttl-ms": 3600000, "connections": 600, "db-connections": 16,
    "read-connections": 64, "loads": 16, "adaptive-loads": 1, "refresh-after-pct": 50,
    "stale-ms": 60000, "soft-timeout-ms": 200, "stale-if-error-ms": 3600000,
    "breaker-failure-pct": 50, "redis-breaker-failure-pct": 50, "breaker-open-ms": 400}

DEFAULTS = {
    "port": 0, "clients": 200, "skew": 1.0, "think-ms": 150, "items": 2000, "instances": 2,
    "db-slots": 16, "db-cost-ms": 150, "redis-pid": "0", "db-pid": 0, "outage-s": 20, "tour": 0,
    "hotitems": os.path.normpath(os.path.join(BUILD, "demo", "hotitems")),
    "chart-js": "/usr/share/javascript/chart.js/chart.min.js", **PASSED_ON}


def parse(arguments):
    options = table.parse(HELP, os.path.join(HERE, "stage.def"), DEFAULTS, arguments)
    if options.snowshed is None:
        built = os.path.normpath(os.path.join(BUILD, "src", "cli", "snowshed"))
        options.snowshed = built if os.access(built, os.X_OK) else "snowshed"
    return options
