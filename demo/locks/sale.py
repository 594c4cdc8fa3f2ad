"""The flash sale: an item is put on sale, processes sell it, some of them are killed, and
the database is asked at the end. What a process says of the number sold is not trusted."""

import random
import time

from crowd import Crowd, Kills, prepare, progress
from talk import Redis, sql

BUYERS, TWICE_PCT = 5000, 10
PATIENCE_S = 90  # if no buyer gets an answer for this long
KILL_SPREAD_S = 0.004
AHEAD = 2        # requests for a thread, so that none waits for this script
FILES = "sql/flashsale.sql and sql/fence.sql"

# (name in JSON, in the table, decimals)
FIGURES = (
    ("orders", "orders in the database", 0), ("oversold", "sold without being there", 0),
    ("stock", "stock left in the database", 0),
    ("bought_twice", "orders of a buyer who had one", 0),
    ("misled", "buyers told what is not so", 0), ("seconds", "seconds to the last order", 2),
    ("most_at_once", "most transactions at once", 0),
    ("stock_queries", "queries to fill the cache", 0),
    ("turned_away", "turned away by the cache alone", 0),
    ("sold_out", "told 'sold out' by the database", 0), ("kills", "processes killed", 0),
    ("kills_inside", "... in a transaction", 0),
    ("refused", "transactions refused by the guard", 0),
    ("lost", "holds lost before the release", 0),
    ("tokens_backwards", "orders with an older token", 0), ("errors", "errors", 0))

WORDS = """
  sold without being there: orders above the number of pieces
  seconds: of 'none' for more orders than of the others
  transactions at once: those between reading the stock and COMMIT
  turned away by the cache alone: told 'sold out' without a query
  guard: the fencing check in the transaction
  older token: older than that of the order before them
"""

PROOF = """
SELECT i.stock, COUNT(o.id), COUNT(DISTINCT o.buyer) FROM flashsale_item AS i
    LEFT JOIN flashsale_order AS o ON o.item = i.id WHERE i.id = {0} GROUP BY i.id, i.stock;
SELECT COUNT(*) FROM (SELECT token < LAG(token) OVER (ORDER BY id) AS is_less
    FROM flashsale_order WHERE item = {0}) AS t WHERE is_less;
SELECT buyer FROM flashsale_order WHERE item = {0}"""


class Sale:
    def __init__(self, options, strategy, item):
        self.options, self.strategy, self.item = options, strategy, item
        chance = random.Random(options.seed + item)
        count = options.buyers or BUYERS
        self.buyers = [*range(count), *(chance.randrange(count)
                                        for _ in range(count * TWICE_PCT // 100))]
        chance.shuffle(self.buyers)  # of each request
        self.waiting = [(request, 0) for request in range(1, len(self.buyers) + 1)][::-1]
        self.due = min(options.pieces, count)
        self.kills = Kills(options.kills, self.due, KILL_SPREAD_S, options.seed + item)
        # under the crowd's lock
        self.inside = set()      # requests in a transaction
        self.have_one = set()    # buyers that were told so
        self.said = dict.fromkeys(("loads", "refused", "lost", "turned-away", "sold-out"), 0)
        self.most_at_once = self.kills_inside = self.answered = 0
        self.last_order_s = 0
        self.put_on_sale()
        self.crowd = Crowd(options, item, self.hear)

    def put_on_sale(self):
        """Also remove what an earlier run, with another database, may have left."""
        redis = Redis(self.options.redis, 10)
        redis.ask("DEL", f"flashsale-plain:{self.item}", f"flashsale:{{{self.item}}}",
                  f"flashsale-setnx:{self.item}")
        redis.close()
        sql(self.options.mysql, f"INSERT INTO flashsale_item (id, strategy, pieces, stock) VALUES "
            f"({self.item}, '{self.strategy}', {self.options.pieces}, {self.options.pieces})")

    # ------------------------------------------------------------------ buyers

    def serve_next(self, process):
        if self.waiting:
            request, is_retry = self.waiting.pop()
            self.crowd.give(process, request, self.buyers[request - 1], is_retry)

    def start(self):
        process = self.crowd.start(self.strategy, self.options.threads)
        with self.crowd.changed:
            for _ in range(AHEAD * self.options.threads):
                self.serve_next(process)

    def hear(self, process, request, words):
        if words[0] == "in":
            self.inside.add(request)
            self.most_at_once = max(self.most_at_once, len(self.inside))
        elif words[0] == "out":
            self.inside.discard(request)
        elif words[0] == "told":
            self.take_answer(request, words[1])
            self.crowd.told(process, request)
            self.serve_next(process)
        else:
            self.said[words[0]] += int(words[1]) if len(words) > 1 else 1

    def take_answer(self, request, answer):
        self.answered += 1
        if answer == "sold":
            self.last_order_s = time.monotonic() - self.crowd.begun
        if answer in ("sold", "has-one"):
            self.have_one.add(self.buyers[request - 1])
        else:
            self.said[answer] += 1

    def kill(self):
        """Buyers that were being served ask again: they may already have an order."""
        requests = self.kills.one(self.crowd)
        with self.crowd.changed:
            self.kills_inside += bool(requests & self.inside)
            self.inside -= requests
            self.waiting += [(request, 1) for request in requests]
        self.start()

    def tick(self):
        progress(f"sale {self.item}, {self.strategy}: {self.answered} of {len(self.buyers)} "
                 f"requests answered, {len(self.have_one)} have one")
        if self.kills.is_due(len(self.have_one)):
            self.kill()

    def run(self):
        for _ in range(self.options.processes):
            self.start()
        self.crowd.run(lambda: self.answered >= len(self.buyers), lambda: self.answered,
                       PATIENCE_S, self.tick)
        self.crowd.end()
        return self.prove()

    # ------------------------------------------------------------------- the end

    def prove(self):
        (stock, orders, buyers), (backwards,), *rows = sql(self.options.mysql,
                                                           PROOF.format(self.item))
        stock, orders, pieces = int(stock), int(orders), self.options.pieces
        have = {int(row[0]) for row in rows}
        misled, errors = len(have ^ self.have_one), int(bool(self.crowd.failure))
        is_exact = orders == self.due and stock == pieces - self.due and \
            int(buyers) == orders and misled == 0 and backwards == "0" and not errors
        return {"strategy": self.strategy, "item": self.item, "exact": is_exact,
                "orders": orders, "oversold": max(0, orders - pieces), "stock": stock,
                "bought_twice": orders - int(buyers), "misled": misled,
                "seconds": round(self.last_order_s, 2), "most_at_once": self.most_at_once,
                "stock_queries": self.said["loads"], "turned_away": self.said["turned-away"],
                "sold_out": self.said["sold-out"], "kills": self.kills.count,
                "kills_inside": self.kills_inside, "refused": self.said["refused"],
                "lost": self.said["lost"], "tokens_backwards": int(backwards),
                "errors": errors, "first_error": self.crowd.failure}


# -------------------------------------------------------------------- the table

def cells(sales, figure):
    """The least and the most of several sales of a strategy."""
    name, _, decimals = figure
    values = [sale[name] for sale in sales]
    ends = [min(values), max(values)] if len(sales) > 1 else values
    return "".join(f"{value:10.{decimals}f}" for value in ends)


def print_table(options, columns):
    print(f"\n{'':36}" + "".join(f"{sales[0]['strategy']:>10}" + (
        f", {len(sales)} sales" if len(sales) > 1 else "") for sales in columns))
    if any(len(sales) > 1 for sales in columns):
        print(f"{'':36}" + "".join(f"{'least':>10}{'most':>10}" if len(sales) > 1 else " " * 10
                                   for sales in columns))
    for figure in FIGURES:
        print(f"  {figure[1]:34}" + "".join(cells(sales, figure) for sales in columns))
    print(WORDS)
    for sales in columns:
        print(f"{sales[0]['strategy']}: {sum(s['exact'] for s in sales)} of {len(sales)} sales "
              f"sold exactly {min(options.pieces, options.buyers or BUYERS)}")
    for sale in (s for sales in columns for s in sales if s["errors"]):
        print(f"sale {sale['item']}, first error: {sale['first_error']}")


def perform(options):
    """Print the table. Returns the figures, and whether each sale with snowshed was exact."""
    prepare(options, FILES, "DELETE FROM flashsale_order", "DELETE FROM flashsale_item")
    print(f"{options.pieces} pieces, {options.buyers or BUYERS} buyers, {TWICE_PCT} % of them "
          f"ask twice;\n{options.processes} processes of {options.threads} threads, "
          f"{options.kills} killed in each sale", flush=True)
    columns, item = [], 0
    for strategy in options.protect:
        columns.append([])
        for _ in range(options.runs if strategy == "snowshed" else 1):
            item += 1
            columns[-1].append(Sale(options, strategy, item).run())
    progress("")
    print_table(options, columns)
    sales = [sale for column in columns for sale in column]
    return {"pieces": options.pieces, "seed": options.seed, "sales": sales}, all(
        not sale["errors"] and (sale["exact"] or sale["strategy"] != "snowshed")
        for sale in sales)
