"""Changing a price in all lanes, and watching how long each instance answers with the
old one."""

import concurrent.futures
import json
import threading
import time

from lanes import LANES
from talk import Failure, ask

ASK_S = 5
CHANGE_S, CHANGE_AGAIN_S = 20, 0.05  # a PATCH may wait for a slow database
RAISE_CENTS, MAX_CENTS = 100, 99900
OFTEN_S, OFTEN_FOR_S, SELDOM_S = 0.005, 2, 0.2  # between two looks
TELL_EVERY_S = 1    # as long as the price is still the old one
WATCH_MAX_S = 120


class Change:
    def __init__(self, number, item, cents):
        self.number, self.item, self.cents = number, item, cents
        # by lane, of the instance that showed the old price longest, and how many still do
        self.old_ms = dict.fromkeys(LANES, 0)
        self.showing = dict.fromkeys(LANES, 0)


class Prices:
    def __init__(self, stage):
        self.stage = stage
        self.newest = Change(0, 0, 0)  # a watcher of an older one ends

    @staticmethod
    def read(port, item):
        """In cents; None if it cannot be read."""
        status, answer = ask(port, "GET", f"/items/{item}", timeout_s=ASK_S)
        return answer.get("price_cents") if status == 200 else None

    def next_change(self, item):
        old = self.read(self.stage.lanes.port("snowshed"), item)
        if old is None:
            raise Failure(502, f"item {item} cannot be read")
        self.newest = Change(self.newest.number + 1, item, old % MAX_CENTS + RAISE_CENTS)
        return self.newest

    def make(self, change):
        """All lanes have one table, so each is told of the same change. One that has made it
        is enough: another may have made it, too, and failed to read the item again."""
        with concurrent.futures.ThreadPoolExecutor(len(LANES)) as pool:
            statuses = list(pool.map(lambda lane: self.make_in(change, lane), LANES))
        if 200 not in statuses:
            raise Failure(502, f"an instance answered the change with {statuses[0]}; try again")

    def make_in(self, change, lane):
        """A lane that is not told keeps the old price for the time to live, though the row has
        changed: so it is told again, by another instance if one has died."""
        end_s, body = time.monotonic() + CHANGE_S, json.dumps({"price_cents": change.cents})
        status = 0
        while (left_s := end_s - time.monotonic()) > 0 and not self.stage.is_ending:
            status, _ = ask(self.stage.lanes.port(lane), "PATCH", f"/items/{change.item}", body,
                            left_s)
            if status == 200:
                break
            time.sleep(CHANGE_AGAIN_S)
        if status != 0:
            self.watch_lane(change, lane)
        return status

    # ----------------------------------------------------------------- watch

    def watch_lane(self, change, lane):
        since_s = time.monotonic()  # the change was answered
        for it in self.stage.lanes.of(lane):
            change.showing[lane] += 1
            threading.Thread(target=self.watch, args=(change, lane, it.port, since_s),
                             daemon=True).start()

    def watch(self, change, lane, port, since_s):
        """On a thread, for each instance."""
        asked_s = told_s = since_s
        old_ms = 0
        while asked_s - since_s < WATCH_MAX_S and change is self.newest \
                and not self.stage.is_ending:
            asked_s = time.monotonic()
            cents = self.read(port, change.item)
            if cents == change.cents:
                self.tell(change, lane, port, old_ms, True)
                return
            if cents is not None:
                old_ms = int((asked_s - since_s) * 1000)
                if asked_s >= told_s:
                    told_s = asked_s + TELL_EVERY_S
                    self.tell(change, lane, port, old_ms, False)
            time.sleep(OFTEN_S if asked_s - since_s < OFTEN_FOR_S else SELDOM_S)

    def tell(self, change, lane, port, old_ms, is_over):
        with self.stage.changed:
            change.old_ms[lane] = max(old_ms, change.old_ms[lane])
            change.showing[lane] -= is_over
        self.stage.hub.tell("price", {"change": change.number, "id": change.item, "lane": lane,
                                      "port": port, "old_ms": old_ms, "is_over": is_over})
