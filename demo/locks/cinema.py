"""The cinema. Which buyer is first, and where it is stopped, is decided by steps at which
buyers wait for a line, never by a sleep; the only times are those of the hold. The
database decides at the end, whatever the processes say."""

import random
import signal
import sys
import time

from crowd import Crowd, Kills, prepare, progress
from talk import sql

STEPS = ("outside", "door", "seat", "card", "exit")
FIRST, NEXT = 1, 2   # the first buyer, and the next one, who wants the same seat
CARD_MS = 20         # how long the card service usually takes
LIMIT_HOLDS = 10     # what it may take, in holds: a host that stalls is not to be late
LONG_HOLD_MS = 600000  # the least length of a hold that must not end in a scenario
PATIENCE_S = 60      # and twenty holds
CLOCK_GRAIN_MS = 1   # a server's expiry is in whole milliseconds of its clock
HALL_BUYERS, HALL_WAIT_MS, KILL_SPREAD_S = 400, 1000, 0.03
FILES = "sql/seats.sql and sql/fence.sql"

# What the database says of a showing, and what was said: (name in JSON, in the table).
FIGURES = (
    ("seats", "seats"), ("sold", "seats sold"), ("charges", "charges"),
    ("untold", "... killed before they were told"),
    ("in_vain", "charged for a seat of another"), ("twice", "seats charged more than once"),
    ("unpaid", "seats without their buyer's charge"), ("misled", "buyers told what is not so"),
    ("told_bought", "told that they have one"), ("told_held", "told that others hold it"),
    ("told_sold", "told that all are sold"), ("told_lost", "told that the hold has ended"),
    ("told_nothing", "buyers whose process was killed"),
    ("killed_holding", "... while they had chosen a seat"), ("kills", "processes killed"),
    ("refused", "payments refused by the guard"), ("lost", "holds that ended before the release"),
    ("errors", "errors"))

WORDS = """\
  without, with: holds; the lock on a seat while its buyer chooses and pays
  charged for a seat of another: charged, but somebody else has the seat
  told: what the buyers were told, beside what the database says
  guard: the fencing check in the transaction that sells"""

# One row for each seat: its charges, and those that its buyer paid.
PROOF = """
SELECT COUNT(*), COUNT(buyer), COALESCE(SUM(charges), 0), COALESCE(SUM(charges - own), 0),
    COALESCE(SUM(charges > 1), 0), COALESCE(SUM(buyer IS NOT NULL AND own = 0), 0) FROM (
    SELECT s.id, s.buyer, COUNT(c.id) AS charges, COALESCE(SUM(c.buyer = s.buyer), 0) AS own
    FROM seat AS s LEFT JOIN charge AS c ON c.seat = s.id
    WHERE s.showing = {0} GROUP BY s.id, s.buyer) AS each_seat"""
CHARGED = """
SELECT c.buyer, s.buyer <=> c.buyer FROM charge AS c JOIN seat AS s ON s.id = c.seat
WHERE s.showing = {0}"""


class Visit:
    """Where a buyer is, and what it was told."""

    def __init__(self):
        self.step, self.answer, self.process = "outside", None, None
        self.has_s = self.told_s = 0  # since when it held its last seat; when it was told


class Showing:
    """Its seats and buyers, and the processes that serve them."""

    def __init__(self, options, number, first_seat, seats, buyers):
        self.options, self.number, self.first_seat = options, number, first_seat
        self.visits = {buyer: Visit() for buyer in range(1, buyers + 1)}
        self.said = {"refused": 0, "ended": 0}
        self.kills = self.killed_holding = 0
        self.patience_s = PATIENCE_S + 2 * LIMIT_HOLDS * options.hold / 1000
        rows = ", ".join(f"({first_seat + n}, {number})" for n in range(seats))
        sql(options.mysql, f"INSERT INTO seat (id, showing) VALUES {rows}")
        self.on_told = lambda process: None
        self.crowd = Crowd(options, number, self.hear)

    def hear(self, process, buyer, words):
        visit = self.visits[buyer]
        if words[0] == "told":
            visit.step, visit.answer, visit.told_s = "exit", words[1], time.monotonic()
            self.crowd.told(process, buyer)
            self.on_told(process)
        elif words[0] == "has":
            visit.has_s = time.monotonic()
        elif words[0] in self.said:
            self.said[words[0]] += 1
        else:
            visit.step = words[0]

    # ----------------------------------------------------------- for scenarios

    def line(self, seat, hold_ms, wait_ms=None, choose_ms=0, card_ms=CARD_MS, limit_ms=None,
             then="pay", stop="-"):
        """What seller is told of a buyer; see cinema.c."""
        return (seat, hold_ms, int(self.patience_s * 1000) if wait_ms is None else wait_ms,
                choose_ms, card_ms, limit_ms or LIMIT_HOLDS * self.options.hold, then, stop)

    def bring(self, buyer, hold_ms=None, **plan):
        """Start one process for one buyer, which wants the seat of this showing."""
        visit = self.visits[buyer]
        visit.process = self.crowd.start("held", 1)
        with self.crowd.changed:
            self.crowd.give(visit.process, buyer, *self.line(
                self.first_seat, hold_ms or self.options.hold, **plan))

    def let_pass(self, buyer):
        self.crowd.send(self.visits[buyer].process, "go on")

    def reach(self, buyer, step):
        """Whether the buyer reaches this step, or a later one, in time."""
        return self.crowd.wait_for(
            lambda: STEPS.index(self.visits[buyer].step) >= STEPS.index(step), self.patience_s)

    def signal(self, buyer, number):
        self.visits[buyer].process.popen.send_signal(number)

    def answer(self, buyer):
        return self.visits[buyer].answer

    def told(self, answer):
        """How many were told this; None: nothing, although they had come in."""
        return sum(v.answer == answer and v.step != "outside" for v in self.visits.values())

    # ------------------------------------------------------------------- the end

    def prove(self):
        """Compare what the database says with what the buyers were told. A buyer whose process
        was killed was told nothing."""
        seats, sold, charges, in_vain, twice, unpaid = map(
            int, sql(self.options.mysql, PROOF.format(self.number))[0])
        right = wrong = untold = 0
        for buyer, has_it in sql(self.options.mysql, CHARGED.format(self.number)):
            visit = self.visits.get(int(buyer))
            told = visit.answer if visit else None
            untold += told is None
            right += told == "bought" and has_it != "0"
            wrong += told not in ("bought", None)
        return {"seats": seats, "sold": sold, "charges": charges, "untold": untold,
                "in_vain": in_vain, "twice": twice, "unpaid": unpaid,
                "misled": self.told("bought") - right + wrong,
                **{f"told_{answer}": self.told(answer)
                   for answer in ("bought", "held", "sold", "lost")},
                "told_nothing": self.told(None), "killed_holding": self.killed_holding,
                "kills": self.kills, "refused": self.said["refused"],
                "lost": self.said["ended"], "errors": int(bool(self.crowd.failure))}


# ------------------------------------------------------------------ of one seat

def have_one_wait(s, then, hold_ms):
    """Let the first buyer hold the seat, and the next one wait for it."""
    s.bring(FIRST, hold_ms, then=then, stop="s")
    if not s.reach(FIRST, "seat"):
        return False
    s.bring(NEXT, hold_ms)
    return s.reach(NEXT, "door")


def long_hold_ms(s):
    return max(s.options.hold, LONG_HOLD_MS)


def next_has_it(s, proof):
    """The usual end."""
    return s.answer(NEXT) == "bought" and proof["sold"] == proof["charges"] == 1


def bought(s, proof):
    return "bought" if next_has_it(s, proof) else "did not buy"


def ms_between(begin_s, end_s):
    return max(0, end_s - begin_s) * 1000 if begin_s and end_s else 0


CONTENDERS, TRY_ONCE, IMPATIENT = 8, 4, 6  # the last ones wait to the end


def run_contest(s):
    """The card service does not answer before all buyers who do not wait have been told."""
    for buyer in range(1, CONTENDERS + 1):
        wait_ms = 0 if buyer <= TRY_ONCE else s.options.hold // 4 if buyer <= IMPATIENT else None
        s.bring(buyer, wait_ms=wait_ms, stop="dc")
    if not all(s.reach(buyer, "door") for buyer in s.visits):
        return False
    for buyer in s.visits:
        s.let_pass(buyer)
    if not all(s.reach(buyer, "card") for buyer in range(1, IMPATIENT + 1)):
        return False
    for buyer in s.visits:
        s.let_pass(buyer)
    return all(s.reach(buyer, "exit") for buyer in s.visits)


def check_contest(s, proof):
    was_impatient = any(s.answer(b) == "bought" for b in range(1, IMPATIENT + 1))
    told = [proof["told_" + answer] for answer in ("bought", "held", "sold")]
    return ("{} bought it, {} were told held, {} told sold".format(*told),
            proof["charges"] == 1 and told == [
                1, IMPATIENT - was_impatient, CONTENDERS - IMPATIENT - (not was_impatient)])


def run_given_back(s):
    if not have_one_wait(s, "leave", long_hold_ms(s)):
        return False
    s.let_pass(FIRST)
    return s.reach(FIRST, "exit") and s.reach(NEXT, "exit")


def check_given_back(s, proof):
    has_left = s.answer(FIRST) == "left"
    return (f"{'given back' if has_left else 'lost'}; the next {bought(s, proof)} it",
            has_left and next_has_it(s, proof))


def run_gone(is_killed):
    def run(s):
        if not have_one_wait(s, "end", long_hold_ms(s)):
            return False
        s.since_s = time.monotonic()
        if is_killed:
            s.signal(FIRST, signal.SIGKILL)
        else:
            s.let_pass(FIRST)
        return s.reach(NEXT, "exit")
    return run


def check_gone(s, proof):
    back_ms = ms_between(s.since_s, s.visits[NEXT].has_s)
    if not next_has_it(s, proof):
        return "the next buyer did not buy it", False
    return (f"back after {back_ms:.0f} ms of {long_hold_ms(s)}; the next bought it",
            back_ms < long_hold_ms(s) / 2)


def run_out(s):
    """The buyer stays and does nothing until the next one has bought the seat."""
    s.since_s = time.monotonic()
    if not have_one_wait(s, "leave", s.options.hold) or not s.reach(NEXT, "exit"):
        return False
    s.let_pass(FIRST)
    return s.reach(FIRST, "exit")


def check_run_out(s, proof):
    back_ms = ms_between(s.since_s, s.visits[NEXT].has_s)
    return (f"back after {back_ms:.0f} ms of {s.options.hold}; the next {bought(s, proof)} it",
            s.answer(FIRST) == "lost" and next_has_it(s, proof)
            and back_ms >= s.options.hold - CLOCK_GRAIN_MS)


def run_long_payment(s):
    """The payment takes twice the hold, and does not end before the other buyer, who waits for
    longer than the hold, has given up."""
    s.bring(FIRST, card_ms=2 * s.options.hold, stop="c")
    if not s.reach(FIRST, "card"):
        return False
    s.bring(NEXT, wait_ms=s.options.hold * 5 // 4)
    if not s.reach(NEXT, "exit"):
        return False
    s.let_pass(FIRST)
    return s.reach(FIRST, "exit")


def check_long_payment(s, proof):
    first, is_held = s.visits[FIRST], s.answer(NEXT) == "held"
    paid_ms = ms_between(first.has_s, first.told_s)
    has_it = first.answer == "bought"
    return (f"{'paid' if has_it else 'not paid'} {paid_ms:.0f} ms into a hold of "
            f"{s.options.hold}; the other: {'held' if is_held else 'not told held'}",
            has_it and is_held and proof["charges"] == 1 and proof["lost"] == 0
            and paid_ms > s.options.hold)


def run_stopped(step):
    """Stop the first buyer at a step until the next one holds the seat; then let it continue
    and get its answer; then let the next one pay."""
    def run(s):
        # The renewed hold must expire, however long it takes to get there.
        s.bring(FIRST, long_hold_ms(s) if step == "card" else None, limit_ms=s.options.hold,
                stop=step[0])
        if not s.reach(FIRST, step):
            return False
        s.signal(FIRST, signal.SIGSTOP)
        s.bring(NEXT, long_hold_ms(s), stop="s")
        if not s.reach(NEXT, "seat"):
            return False
        s.let_pass(FIRST)
        s.signal(FIRST, signal.SIGCONT)
        if not s.reach(FIRST, "exit"):
            return False
        s.let_pass(NEXT)
        return s.reach(NEXT, "exit")
    return run


def check_stopped(by, refused):
    def check(s, proof):
        is_refused = s.answer(FIRST) == "lost" and proof["refused"] == refused
        return (f"{'refused' if is_refused else 'not refused'} by {by}; the next "
                f"{bought(s, proof)} it", is_refused and next_has_it(s, proof))
    return check


# --------------------------------------------------------------- of a whole hall

def run_hall(way):
    """Many buyers at once in several processes, some of which are killed."""
    def run(s):
        o, chance = s.options, random.Random(s.options.seed)
        waiting = list(s.visits)

        def serve_next(process):
            if waiting:
                s.crowd.give(process, waiting.pop(0), *s.line(
                    0, o.hold, HALL_WAIT_MS, chance.randrange(31), chance.randrange(10, 41)))

        def start():
            process = s.crowd.start(way, o.threads)
            with s.crowd.changed:
                for _ in range(o.threads):
                    serve_next(process)

        def tick():
            progress(f"{len(s.visits) - len(waiting)} of {len(s.visits)} buyers have come, "
                     f"{s.told('bought')} have a seat")
            if kills.is_due(s.told("bought")):
                for buyer in kills.one(s.crowd):
                    s.killed_holding += s.visits[buyer].step in ("seat", "card")
                start()

        kills = Kills(o.kills, o.seats, KILL_SPREAD_S, o.seed)
        s.on_told = serve_next
        for _ in range(o.processes):
            start()
        s.crowd.run(lambda: not waiting and not any(p.serving for p in s.crowd.processes),
                    lambda: len(waiting), s.patience_s, tick)
        s.kills = kills.count
        return True
    return run


def describe_hall(proof):
    return (f"{proof['sold']} of {proof['seats']} sold, {proof['charges']} charges, "
            f"{proof['in_vain']} in vain; {proof['kills']} kills")


def check_without(_, proof):
    return describe_hall(proof), proof["in_vain"] > 0


def check_with(_, proof):
    """Every buyer, except those whose process was killed, has a seat, or was told that all are
    sold, which is then true."""
    return (describe_hall(proof), proof["told_held"] == proof["told_lost"] == 0
            and (proof["told_sold"] == 0 or proof["sold"] == proof["seats"])
            and (proof["told_nothing"] == 0 or proof["kills"] > 0))


# (name, title, what is expected, buyers: 0 is a whole hall, run, check)
SCENARIOS = (
    ("contest", "8 buyers, one seat", "one has it, all are told", CONTENDERS, run_contest,
     check_contest),
    ("given back", "the hold is given back", "the next has it", 2, run_given_back,
     check_given_back),
    ("ended", "the holder's process ends", "back long before its end", 2, run_gone(False),
     check_gone),
    ("killed", "the holder is killed", "back long before its end", 2, run_gone(True),
     check_gone),
    ("run out", "the hold runs out", "back at its end, not before", 2, run_out, check_run_out),
    ("long payment", "payment outlasts the hold", "the payer has it alone", 2, run_long_payment,
     check_long_payment),
    ("stopped choosing", "stopped, then pays", "refused, not charged", 2, run_stopped("seat"),
     check_stopped("the renewal", 0)),
    ("stopped paying", "stopped while paying", "refused, not charged", 2, run_stopped("card"),
     check_stopped("the guard", 1)),
    ("hall without", "a hall without holds", "charges in vain", 0, run_hall("plain"),
     check_without),
    ("hall with", "a hall with holds", "a charge for each sold seat", 0, run_hall("held"),
     check_with))


def nobody_is_wronged(proof):
    """By the database, in every scenario with holds."""
    return proof["in_vain"] == proof["twice"] == proof["unpaid"] == proof["misled"] == 0 \
        and proof["charges"] == proof["sold"]


def verdict(name, has_come, is_expected, proof):
    if not has_come or proof["errors"]:
        return "FAILED"
    if name == "hall without":
        return "shown" if is_expected else "not shown"
    return "ok" if is_expected and nobody_is_wronged(proof) else "FAILED"


def play(options, number, first_seat):
    name, title, expected, buyers, run, check = SCENARIOS[number - 1]
    progress(title + " ...")
    showing = Showing(options, number, first_seat, 1 if buyers else options.seats,
                      buyers or options.buyers or HALL_BUYERS)
    has_come = run(showing)
    showing.crowd.end()
    seconds = time.monotonic() - showing.crowd.begun
    proof = showing.prove()
    happened, is_expected = check(showing, proof)
    if not has_come or proof["errors"]:
        happened = "stopped: " + (showing.crowd.failure or "a buyer did not come in time")
    return {"scenario": name, "happened": happened, "expected": expected,
            "result": verdict(name, has_come, is_expected, proof), "showing": number, **proof,
            "seconds": round(seconds, 3)}, title


def perform(options):
    """Print the table. Returns the figures, and whether all went as expected."""
    prepare(options, FILES, "DELETE FROM charge", "DELETE FROM seat")
    print(f"a seat is held for {options.hold} ms; a hall of {options.seats} seats, "
          f"{options.buyers or HALL_BUYERS} buyers,\n{options.processes} processes of "
          f"{options.threads} threads, {options.kills} kills\n\n"
          f"{'scenario':28}{'expected':40}{'result':>12}", flush=True)
    results, first_seat, is_good = [], 1, True
    for number in range(1, len(SCENARIOS) + 1):
        result, title = play(options, number, first_seat)
        first_seat += result["seats"]
        results.append(result)
        is_good = is_good and result["result"] != "FAILED"
        progress("")
        print(f"{title:28}{result['expected']:40}{result['result']:>12}\n"
              f"  {result['happened']:.78}", flush=True)
        if result["result"] == "FAILED":
            print(f"locks: FAILED: {title}: {result['happened']}", file=sys.stderr)
    without, with_holds = results[-2:]
    print(f"\n{'the hall':40}{'without':>10}{'with':>10}")
    for name, title in FIGURES:
        print(f"  {title:38}{without[name]:10}{with_holds[name]:10}")
    print(f"  {'seconds':38}{without['seconds']:10.2f}{with_holds['seconds']:10.2f}\n{WORDS}",
          flush=True)
    return {"hold_ms": options.hold, "seats": options.seats, "kills": options.kills,
            "seed": options.seed, "held": is_good, "scenarios": results}, is_good
