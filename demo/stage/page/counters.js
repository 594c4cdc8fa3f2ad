// What the instances report, as rates and series of a lane. No DOM in here.
//
// Counters are cumulative since an instance's start. Each instance keeps totals
// that only grow: a counter that is lower than before belongs to a process that
// has started again and counts from zero.

export const HISTORY_MS = 60000;
export const BIN_MS = 500;
const RATE_MS = 1000;
// an instance without news for this long is not counted any more
export const SILENT_MS = 3000;
// how long after something was done its queries are counted
// and what came of it: longer than the 5 s that a lock of setnx outlives its holder
export const EFFECT_MS = 10000;

const ORIGINS = ["redis", "load", "waited", "negative", "stale",
  "unpublished"];
const COUNTERS = ["answers", "errors", "queries", "refused", ...ORIGINS];
const BREAKER_STATES = ["closed", "half-open", "open"]; // the worst is the last
const NOTHING = Object.fromEntries(COUNTERS.map((name) => [name, 0]));

function countersOf(sample) {
  const values = { ...sample.origins, refused: sample.guard?.refused, ...sample,
    answers: sample.requests - sample.errors };
  return Object.fromEntries(COUNTERS.map((name) => [name, values[name] ?? 0]));
}

export class Instance {
  // wasAbsent: it has started after the page, so all that it counts is new.
  constructor(wasAbsent) {
    this.seen = wasAbsent ? NOTHING : null;
    this.total = { ...NOTHING };
    this.samples = [];
    this.hot = [];
  }

  add(sample) {
    const now = countersOf(sample);
    for (const name of this.seen ? COUNTERS : []) {
      const more = now[name] - this.seen[name];
      this.total[name] += more >= 0 ? more : now[name];
    }
    this.seen = now;
    this.hot = Array.isArray(sample.hot) ? sample.hot : [];
    const last = this.last();
    if (last && sample.time_ms <= last.t)
      this.samples = this.samples.filter((s) => s.t < sample.time_ms);
    this.samples.push({ t: sample.time_ms, total: { ...this.total },
      alive: sample.queries_alive, waiting: sample.waiting, guard: sample.guard,
      most_waiting: sample.most_waiting, p50: sample.p50_us / 1000,
      p99: sample.p99_us / 1000, slowest: sample.max_us / 1000 });
    const oldest = sample.time_ms - HISTORY_MS - 2 * RATE_MS;
    while (this.samples.length > 1 && this.samples[1].t < oldest)
      this.samples.shift();
  }

  last() {
    return this.samples[this.samples.length - 1];
  }

  // The index of the last sample at or before t; -1 before the first.
  indexAt(t) {
    let i = this.samples.length - 1;
    while (i >= 0 && this.samples[i].t > t)
      i--;
    return i;
  }

  // The totals that were reported last at or before t. Before the first report
  // nothing had been counted, here or at all.
  reportedAt(t) {
    return this.samples[this.indexAt(t)]?.total ?? NOTHING;
  }

  // A total at t: between two reports it has grown evenly.
  totalAt(name, t) {
    const i = this.indexAt(t);
    const before = this.samples[Math.max(0, i)];
    const after = this.samples[i + 1];
    if (!before)
      return 0;
    if (i < 0 || !after)
      return before.total[name];
    const part = (t - before.t) / (after.t - before.t);
    return before.total[name] + part * (after.total[name] - before.total[name]);
  }

  // The reports in (from, to].
  between(from, to) {
    return this.samples.slice(this.indexAt(from) + 1, this.indexAt(to) + 1);
  }
}

// The worst state of a breaker. One that is not there is closed.
const worstOf = (states) => BREAKER_STATES[Math.max(0,
  ...states.map((state) => BREAKER_STATES.indexOf(state)))];

// Of the connections to Redis: that which has been down longest, or was connected
// last; the worst state of the breakers before it, and when the next one tries
// again; and in how many instances all is well.
function redisOf(guards) {
  const all = guards.map((guard) => guard.redis);
  const down = all.filter((redis) => !redis.up);
  const open = all.filter((redis) => redis.breaker === "open");
  return { isUp: down.length === 0,
    since_ms: down.length > 0 ? Math.max(...down.map((redis) => redis.since_ms))
      : Math.min(...all.map((redis) => redis.since_ms)),
    breaker: worstOf(all.map((redis) => redis.breaker)),
    retry_ms: open.length > 0 ? Math.min(...open.map((redis) => redis.retry_ms)) : 0,
    troubled: all.filter((redis) => !redis.up ||
      BREAKER_STATES.indexOf(redis.breaker) > 0).length, of: all.length };
}

// Of instances that have it; null without one.
function sumOf(guards, name) {
  const known = guards.filter(Boolean);
  return known.length === 0 ? null
    : known.reduce((sum, guard) => sum + guard[name], 0);
}

const greatest = (values) => values.length ? Math.max(...values) : null;

// Percentiles cannot be added: the slowest instance's counts. Without an answer
// in the last second there is none.
const percentile = (samples, name) =>
  greatest(samples.map((s) => s[name]).filter((value) => value > 0));

export class Lane {
  constructor(name) {
    this.name = name;
    this.instances = new Map(); // by process; those that are gone, too, for a while
    this.bins = []; // finished, oldest first
    this.nextBin = null;
  }

  list() {
    return [...this.instances.values()];
  }

  // Drop what is older than the picture.
  forget(now) {
    for (const [pid, instance] of this.instances) {
      const last = instance.last();
      if (instance.isGone && (!last || last.t < now - HISTORY_MS))
        this.instances.delete(pid);
    }
  }

  isAlive(instance, now) {
    const last = instance.last();
    return !instance.isGone && last !== undefined && last.t > now - SILENT_MS;
  }

  // What the lane does now.
  figures(now) {
    const alive = this.list().filter((i) => this.isAlive(i, now));
    const latest = alive.map((i) => i.last());
    const result = { isAlive: alive.length > 0, rate: {},
      queriesAlive: 0, waiting: 0, p50: percentile(latest, "p50"),
      p99: percentile(latest, "p99"), errors: 0 };
    for (const name of COUNTERS)
      result.rate[name] = alive.reduce((sum, i) => sum + rateOf(i, name), 0);
    const items = ORIGINS.reduce((sum, name) => sum + result.rate[name], 0);
    result.hitRatio = items > 0
      ? (result.rate.redis + result.rate.negative) / items : null;
    for (const sample of latest) {
      result.queriesAlive += sample.alive;
      result.waiting += sample.waiting;
    }
    for (const instance of this.list())
      result.errors += instance.total.errors;
    return result;
  }

  // Until when every instance has reported, but for those that are silent.
  knownUntil(now) {
    const alive = this.list().filter((i) => this.isAlive(i, now));
    return alive.length > 0 ? Math.min(...alive.map((i) => i.last().t))
      : now - SILENT_MS;
  }

  // Finish the bins of which all is known.
  advance(now) {
    const end = Math.min(now, this.knownUntil(now));
    if (this.nextBin === null || this.nextBin < now - 2 * HISTORY_MS)
      this.nextBin = Math.floor((now - HISTORY_MS) / BIN_MS) * BIN_MS;
    while (this.nextBin + BIN_MS <= end) {
      this.bins.push(this.makeBin(this.nextBin));
      this.nextBin += BIN_MS;
    }
    while (this.bins.length && this.bins[0].t < now - HISTORY_MS - BIN_MS)
      this.bins.shift();
  }

  makeBin(from) {
    const to = from + BIN_MS;
    const known = this.list().filter((i) => i.samples.length > 0 &&
      i.samples[0].t <= from && i.last().t >= from);
    const rate = (name) => known.length === 0 ? null : known.reduce((sum, i) =>
      sum + i.totalAt(name, to) - i.totalAt(name, from), 0) * 1000 / BIN_MS;
    const samples = known.flatMap((i) => i.between(from, to));
    const guards = known.map((i) => i.samples[i.indexAt(to)]?.guard);
    return { t: to, queries: rate("queries"), answers: rate("answers"),
      errors: rate("errors"),
      p50: percentile(samples, "p50"), p99: percentile(samples, "p99"),
      loads: sumOf(guards, "loads"), limit: sumOf(guards, "loads_limit"),
      most: sumOf(guards, "loads_max") };
  }

  // What came of something that was done at from: what was counted until to, and
  // the worst that callers met; waiting: in one process.
  effect(from, to) {
    const list = this.list();
    const samples = list.flatMap((i) => i.between(from, to));
    const counted = (name) => list.reduce((sum, i) =>
      sum + i.reportedAt(to)[name] - i.reportedAt(from)[name], 0);
    return { answers: counted("answers"), queries: counted("queries"),
      errors: counted("errors"), stale: counted("stale"),
      p99: percentile(samples, "p99"), slowest: percentile(samples, "slowest"),
      waiting: greatest(samples.map((s) => s.most_waiting)) ?? 0 };
  }

  // How it protects itself now; null if it does not. Of each breaker the worst
  // state in any instance, and in how many it is not closed.
  guard(now) {
    const guards = this.list().filter((i) => this.isAlive(i, now))
      .map((i) => i.last().guard).filter(Boolean);
    if (guards.length === 0)
      return null;
    const breakers = Object.keys(guards[0].breakers).map((name) => {
      const states = guards.map((g) => g.breakers[name]);
      return { name, state: worstOf(states),
        troubled: states.filter((state) => state !== "closed").length,
        of: guards.length };
    });
    return { breakers, loads: sumOf(guards, "loads"),
      limit: sumOf(guards, "loads_limit"), most: sumOf(guards, "loads_max"),
      undelivered: sumOf(guards, "undelivered"), redis: redisOf(guards) };
  }

  // How often each hot item was wanted, by its id.
  addHot(wanted, now) {
    for (const instance of this.list().filter((i) => this.isAlive(i, now)))
      for (const item of instance.hot)
        wanted.set(item.id, (wanted.get(item.id) ?? 0) + item.wanted);
  }
}

// Per second, over the last second that an instance has reported on.
function rateOf(instance, name) {
  const last = instance.last();
  const before = instance.samples[Math.max(0, instance.indexAt(last.t - RATE_MS))];
  const span = last.t - before.t;
  return span > 0 ? (last.total[name] - before.total[name]) * 1000 / span : 0;
}
