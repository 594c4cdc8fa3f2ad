"""The buttons. One of them acts at a time."""

import concurrent.futures
import contextlib
import threading
import time

from hub import now_ms
from lanes import ABSENT, LANES
from prices import Prices
from servers import State
from talk import ITEMS_MAX, Failure, ask_items, sql

BUSY_MAX_S = 10       # another button that is pressed meanwhile waits this long
HOTTEST_IN_S, ALL_IN_S = 0.2, 1  # all instances have been told by then
LOAD_BEGINS_S = 0.02  # many requests come in that time
BATCH = 25            # items in one request; an instance has a deadline for it
TRIES = 5             # an instance may be slow, or have been killed
PARTS = 4             # requests at a time
SLOW_FACTOR, SLOW_MAX_S = 5, 60
KILL_MAX_S, KILL_AGAIN_S, KILL_TURN_S = 10, 1, 0.002


def key(lane, item):
    """As the library names it, and as the lanes none and setnx do."""
    return f"hotitem:{{{item}}}" if lane == "snowshed" else f"hotitems:{lane}:{item}"


def lock_key(item):
    return f"hotitems:setnx:lock:{item}"


class Buttons:
    def __init__(self, stage):
        self.stage, self.options = stage, stage.options
        self.busy = threading.Lock()
        self.prices = Prices(stage)
        self.restorer = None  # a timer, while the database is slow
        nodes, database = stage.redis, stage.database
        redis = self.one = nodes.one
        # name: label, what it does, whether that lasts now
        of_one = {
            "stop-redis": ("Stop Redis for 5 s", self.stop_redis,
                           lambda: redis.state is State.STOPPED),
            "continue-redis": ("Continue Redis", self.continue_redis, None),
            "kill-redis": ("Kill Redis", self.kill_redis,
                           lambda: redis.is_down() and not redis.keeps_data),
            "leave-redis": ("Shut Redis down", self.leave_redis,
                            lambda: redis.is_down() and redis.keeps_data),
            "start-redis": ("Start Redis", self.start_redis, None),
        }
        of_several = {
            "kill-primary": ("Kill a primary", self.kill_primary, nodes.is_any_down),
            "start-primary": ("Start it again", self.start_primary, None),
        }
        self.table = {
            "expire-hottest": ("Expire the hottest item", self.expire_hottest, None),
            "expire-all": ("Expire everything", self.expire_everything, None),
            "absent": ("Ask for items that do not exist", self.ask_for_absent, None),
            "empty-redis": ("Empty Redis", self.empty_redis, None),
            **(of_one if redis else of_several),
            "slow-db": ("Slow the database", self.slow_database, lambda: bool(self.restorer)),
            "restore-db": ("Restore the database", self.restore_database, None),
            "db-down": ("Kill the database", self.kill_database, database.is_down),
            "db-up": ("Start the database", self.start_database, None),
            "kill-loader": ("Kill the loading process", self.kill_loader, None),
            "change-price": ("Change a price", self.change_price, None),
        }

    def describe(self):
        with self.stage.changed:
            return [{"name": name, "label": label, "is_on": bool(is_on and is_on())}
                    for name, (label, _, is_on) in self.table.items()]

    def press(self, name):
        """Returns what was done, or raises a Failure."""
        if name not in self.table:
            raise Failure(404, f"there is no action '{name:.40}'")
        if not self.busy.acquire(timeout=BUSY_MAX_S):
            raise Failure(503, "another action is still under way")
        try:
            return self.table[name][1]()
        finally:
            self.busy.release()

    def mark(self, action, text, time_ms, item=None):
        self.stage.hub.mark(action, text, time_ms, item)
        return text

    # ---------------------------------------------------------------- expiry

    def expire(self, items, in_s):
        """Let their times to live end together in all lanes. That is a moment ahead, so
        that callers read an entry up to its end, as they do in the course of time, and
        the lane snowshed refreshes what is read, as it does then."""
        end_s = time.monotonic() + in_s

        def left_ms():  # what is told late ends at once
            return max(int((end_s - time.monotonic()) * 1000), 1)

        def ask_expiry(ids):
            for _ in range(TRIES):
                status = ask_items(self.stage.lanes.port("snowshed"), "POST",
                                   f"/items/expire?in_ms={left_ms()}&ids=", ids)
                if status == 200:
                    break
            return status

        # Without the library what has expired is gone.
        with self.stage.redis.connect() as redis:
            redis.ask_all([("PEXPIRE", key(lane, item), left_ms())
                           for item in items for lane in ("none", "setnx")])
        # With it an expired row stays for the stale windows. So instances are asked, which
        # know how; it is a round trip to Redis for each item, so some at a time.
        batches = [items[i:i + BATCH] for i in range(0, len(items), BATCH)]
        with concurrent.futures.ThreadPoolExecutor(PARTS) as pool:
            for status in pool.map(ask_expiry, batches):
                if status != 200:
                    raise Failure(502, "an instance of snowshed answered the expiry with "
                                  f"{status}; try again")
        time.sleep(left_ms() / 1000)

    def all_items(self):
        return range(1, self.options.items + 1)

    def expire_hottest(self):
        item, time_ms = self.stage.lanes.hottest(), now_ms()
        self.expire([item], HOTTEST_IN_S)
        return self.mark("expire-hottest", f"the hottest item ({item}) expired", time_ms, item)

    def expire_everything(self):
        time_ms = now_ms()
        self.expire(self.all_items(), ALL_IN_S)
        return self.mark("expire-all", f"all {self.options.items} items expired", time_ms)

    def with_expiry(self, action, text, time_ms):
        """The mark of trouble with the database, in which all items expire, too: the lanes
        live on the rows in Redis, and load nothing unless these expire."""
        can_expire = self.stage.redis.is_up()
        self.mark(action, text + (", and all items expire" if can_expire else ""), time_ms)
        if can_expire:
            with contextlib.suppress(Failure):
                self.expire(self.all_items(), ALL_IN_S)
        return text + (", and all items expire" if can_expire else "")

    def ask_for_absent(self):
        """The main thread starts the clients."""
        with self.stage.changed:
            self.stage.lanes.absent_wanted += 1
        self.stage.wake()
        return self.mark("absent", f"each lane is asked for {ABSENT} items that do not exist",
                         now_ms())

    # ----------------------------------------------------------------- Redis

    def empty_redis(self):
        time_ms = now_ms()
        with self.stage.redis.connect() as redis:
            redis.ask("FLUSHDB")
        return self.mark("empty-redis", "Redis was emptied", time_ms)

    def stop_redis(self):
        self.one.stop(True)
        return "Redis is stopped"

    def continue_redis(self):
        self.one.stop(False)
        return "Redis continues"

    def kill_redis(self):
        time_ms = now_ms()
        self.one.keeps_data = False
        self.one.kill()
        return self.mark("kill-redis", "Redis is killed, and its data lost", time_ms)

    def leave_redis(self):
        """SHUTDOWN SAVE: nothing is written between what it saves and its end, so that no
        acknowledged invalidation is lost."""
        time_ms, server = now_ms(), self.one
        server.may_end()
        with self.stage.redis.connect() as redis, contextlib.suppress(Failure):  # it does not reply
            server.keeps_data = True
            redis.ask("SHUTDOWN", "SAVE")
        try:
            server.await_end()
        except Failure:
            server.keeps_data = False
            raise
        return self.mark("leave-redis", "Redis is shut down, and its data saved", time_ms)

    def start_redis(self):
        self.one.start_now()
        return "Redis is back"

    def kill_primary(self):
        time_ms, name = now_ms(), self.stage.redis.kill_primary()
        return self.mark("kill-primary", f"primary {name} is killed", time_ms)

    def start_primary(self):
        return (self.stage.redis.start_all() or "every server") + " is back"

    # -------------------------------------------------------------- database

    def set_cost(self, cost_ms):
        """By sql/capacity.sql, for each lane."""
        try:
            sql(self.options.mysql, "".join(
                f"CALL set_capacity('{lane}', {self.options.db_slots}, {cost_ms * 1000});"
                for lane in LANES))
        except Failure as failure:
            raise Failure(502, f"{failure} (is sql/capacity.sql loaded?)") from failure

    def switch_database(self, cost_ms, restorer):
        self.stage.database.must_be_up()
        self.set_cost(cost_ms)
        with self.stage.changed:
            if self.restorer:
                self.restorer.cancel()
            self.restorer = restorer
        if restorer:
            restorer.daemon = True
            restorer.start()
        self.stage.tell_lanes()
        return f"a query takes {cost_ms} ms now"

    def slow_database(self):
        time_ms = now_ms()
        said = self.switch_database(self.options.db_cost_ms * SLOW_FACTOR,
                                    threading.Timer(SLOW_MAX_S, self.press, ["restore-db"]))
        self.with_expiry("slow-db", "the database is slow: " + said, time_ms)
        return said

    def restore_database(self):
        time_ms = now_ms()
        said = self.switch_database(self.options.db_cost_ms, None)
        self.mark("restore-db", "the database is restored: " + said, time_ms)
        return said

    def kill_database(self):
        time_ms = now_ms()
        self.stage.database.kill()
        return self.with_expiry("db-down", "the database is killed", time_ms)

    def start_database(self):
        self.stage.database.start_now()
        return "the database is back"

    # ------------------------------------------------------------------ kill

    def find_loader(self, redis, lane, item):
        """The process that loads the item; 0: none. Without protection every process that
        is asked for it does."""
        if lane == "setnx":
            return int(redis.ask("GET", lock_key(item)) or 0)
        if lane == "snowshed":
            entry = self.stage.ask_tool(item) or {}
            return (entry.get("holder") or {}).get("pid") or 0
        return None

    def kill_loader(self):
        """In each lane, the process that loads the hottest item. A load that was missed is
        made again."""
        item, time_ms, killed = self.stage.lanes.hottest(), now_ms(), {}
        end_s, again_s = time.monotonic() + KILL_MAX_S, 0
        with self.stage.redis.connect() as redis:
            while len(killed) < len(LANES) and time.monotonic() < end_s \
                    and not self.stage.is_ending:
                left = [lane for lane in LANES if lane not in killed]
                if time.monotonic() >= again_s:
                    # The entry of snowshed goes, too: then its lease is where it was.
                    again_s = time.monotonic() + KILL_AGAIN_S
                    redis.ask_all([("PEXPIRE", key(lane, item), 1) for lane in left])
                for lane in reversed(left):
                    loader = self.find_loader(redis, lane, item)
                    pid = loader != 0 and self.stage.lanes.kill(lane, loader)
                    if pid:
                        killed[lane] = pid
                time.sleep(KILL_TURN_S)
        if not killed:
            raise Failure(409, f"nobody loads item {item}: there is no traffic")
        return self.mark("kill-loader", f"killed while item {item} was loaded: " + ", ".join(
            f"{lane} {killed[lane]}" for lane in LANES if lane in killed), time_ms, item)

    # ----------------------------------------------------------------- price

    def change_price(self):
        """While the item is being loaded, so that what was read before could be stored
        after."""
        self.stage.database.must_be_up()
        item, time_ms = self.stage.lanes.hottest(), now_ms()
        change = self.prices.next_change(item)
        self.expire([item], 0.001)
        time.sleep(LOAD_BEGINS_S)
        self.prices.make(change)
        return self.mark("change-price", f"the price of item {item} was changed to "
                         f"{change.cents / 100:.2f} during a load", time_ms, item)

    # --------------------------------------------------------- begin and end

    def warm(self):
        """Fill the lanes' caches before there are clients, so that afterwards nothing is
        loaded unless a button is pressed. What fails here is loaded when a client asks for
        it. The database costs nothing meanwhile."""
        for lane in LANES:
            for first in range(1, self.options.items + 1, ITEMS_MAX):
                ids = range(first, min(first + ITEMS_MAX, self.options.items + 1))
                if not self.stage.is_ending:
                    ask_items(self.stage.lanes.port(lane), "GET", "/items?ids=", ids)
        self.set_cost(self.options.db_cost_ms)

    def end(self):
        """The database is as it was."""
        if self.restorer:
            self.restorer.cancel()
            self.set_cost(self.options.db_cost_ms)
