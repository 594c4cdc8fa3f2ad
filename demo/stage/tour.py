"""A short run by itself, under traffic: the hottest item expires, its price changes while
it is loaded, the process that loads it is killed. All figures are from the instances'
samples."""

import statistics

from hub import now_ms
from lanes import LANES
from talk import Failure

READY_S = 20  # until all instances have clients and send samples

# Of each phase, its part of the tour: of 15 s, the last one is longer than the 5 s for
# which setnx waits for the lock of a process that died.
PHASES = (("quiet", None, 0.15), ("the hottest item expires", "expire-hottest", 0.2),
          ("its price changes in a load", "change-price", 0.25),
          ("its loading process is killed", "kill-loader", 0.4))
COUNTED = ("requests", "queries", "errors")

WORDS = """
none: on a miss, each caller asks the database. setnx: one takes a SETNX lock
and asks, the others look again every 10 ms. snowshed: this library.
database queries: SELECTs for items that the database has answered, one for a
load of many items. p50, p99: half, and 99 %, of the answers took no longer; p50
is the median second, p99 the worst second. errors: requests that failed with
5xx, 504 above all, which have no latency. most requests at once: that one
process had not answered. old price: from the answer to the change until the
last answer with the old one; with '>' it was still shown when the next trouble
began, and would be until the entry expires. The item is loaded while its price
changes, so what was read before is stored after, unless that is refused.
"""


class Tally:
    """What a lane has counted in a phase."""

    def __init__(self):
        self.counts = dict.fromkeys(COUNTED, 0)
        self.most_waiting = 0
        self.p50_us, self.p99_us = [], [0]

    def add(self, before, sample):
        """Since the sample before; an instance that was started again counts from 0."""
        if before is None or sample["requests"] < before["requests"]:
            before = dict.fromkeys(COUNTED, 0)
        for what in COUNTED:
            self.counts[what] += max(sample[what] - before[what], 0)
        self.most_waiting = max(self.most_waiting, sample["most_waiting"])
        self.p99_us.append(sample["p99_us"])
        self.p50_us += [sample["p50_us"]] if sample["requests"] else []


class Tour:
    def __init__(self, stage):
        self.stage = stage
        self.tallies = {}  # by lane, of the phase
        self.done = []     # those of each phase
        self.change = None  # of the price

    def observe(self, instance, sample):
        if self.tallies:
            self.tallies[instance.lane].add(instance.sample, sample)

    def wait_for(self, condition):
        """Returns whether it is so in time, and the stage does not end."""
        with self.stage.changed:
            self.stage.changed.wait_for(lambda: condition() or self.stage.is_ending, READY_S)
            return condition() and not self.stage.is_ending

    def have_reported(self, since_ms):
        return all(it.sample and it.sample["time_ms"] >= since_ms
                   for it in self.stage.lanes.instances if it.is_up())

    def show(self, action, part):
        """An action, and what follows from it: counted when this returns, because the samples
        that tell of it have come."""
        with self.stage.changed:
            self.tallies = {lane: Tally() for lane in LANES}
            self.done.append(self.tallies)
        if action:
            self.stage.buttons.press(action)
        with self.stage.changed:
            self.stage.changed.wait_for(lambda: self.stage.is_ending,
                                        self.stage.options.tour * part)
        since_ms = now_ms()
        self.wait_for(lambda: self.have_reported(since_ms))
        self.change = self.change or (action == "change-price" and self.freeze_price())

    def freeze_price(self):
        newest = self.stage.buttons.prices.newest
        return {lane: f"{'> ' if newest.showing[lane] else ''}{newest.old_ms[lane]}"
                for lane in LANES}

    def perform(self):
        """On a thread. Returns whether it came to its end."""
        self.stage.lanes.observe = self.observe
        if not self.wait_for(lambda: all(it.sample and it.sample["hot"]
                                         for it in self.stage.lanes.instances)):
            raise Failure(502, "no samples from the instances: are there clients?")
        for _, action, part in PHASES:
            self.show(action, part)
            if self.stage.is_ending:
                return False
        self.print_table()
        return True

    # ----------------------------------------------------------------- table

    def row(self, name, figure, form="{:.0f}"):
        print(f"  {name:30}" + "".join(f" {form.format(figure(lane)):>11}" for lane in LANES))

    def print_table(self):
        o = self.stage.options

        def total(what):
            return lambda lane: sum(phase[lane].counts[what] for phase in self.done)

        print(f"{o.clients} clients for each lane of {o.instances} processes; a query takes "
              f"{o.db_cost_ms} ms, {o.db_slots} at a time\n")
        print(f"{'hotitems':32}" + "".join(f" {lane:>11}" for lane in LANES))
        self.row("requests", total("requests"))
        self.row("database queries", total("queries"))
        self.row("most requests at once", lambda lane: max(p[lane].most_waiting
                                                           for p in self.done))
        self.row("p50 ms", lambda lane: statistics.median(
            [us for p in self.done for us in p[lane].p50_us] or [0]) / 1000, "{:.2f}")
        self.row("p99 ms before the trouble", lambda lane: max(self.done[0][lane].p99_us) / 1000,
                 "{:.2f}")
        self.row("errors", total("errors"))
        for (title, action, _), phase in list(zip(PHASES, self.done))[1:]:
            print("  " + title)
            self.row("  database queries", lambda lane: phase[lane].counts["queries"])
            self.row("  p99 ms", lambda lane: max(phase[lane].p99_us) / 1000, "{:.2f}")
            self.row("  errors", lambda lane: phase[lane].counts["errors"])
            if action == "change-price":
                self.row("  old price shown for ms", self.change.get, "{}")
        print(WORDS, end="", flush=True)
