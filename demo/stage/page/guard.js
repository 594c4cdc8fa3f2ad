// How a lane protects itself: its connection to Redis, its circuit breakers, and the
// bound on its loads.
import { Terms, byId, count, duration, make, rate, setText } from "./text.js";

const BEFORE = { database: "the database" };

export const breakerName = (name) => `The breaker before ${BEFORE[name] ?? name}`;

function breakerText({ name, state, troubled, of }) {
  const where = state === "closed" ? `in all ${of} instances`
    : `in ${troubled} of ${of} instances`;
  return `${breakerName(name)} is ${state} ${where}`;
}

// Seconds are enough for what is looked at.
const seconds = (ms) => duration(ms < 1000 ? 1000 : Math.round(ms / 1000) * 1000)
  .replace(".0", "");

// The state of the connection, and of the breaker before it where it is not closed.
function redisText({ isUp, since_ms, breaker, retry_ms, troubled, of }) {
  const where = troubled > 0 ? `in ${troubled} of ${of} instances`
    : `in all ${of} instances`;
  const connection = `${isUp ? "up" : "down"} for ${seconds(since_ms)}`;
  const then = breaker === "open" ? `, tries again in ${seconds(retry_ms)}`
    : ", tries a few calls";
  if (breaker === "closed")
    return `Redis: ${connection} ${where}`;
  return isUp ? `Redis: breaker ${breaker} ${where}${then}`
    : `Redis: ${connection} ${where}; breaker ${breaker}${then}`;
}

function redisState({ isUp, breaker }) {
  return isUp ? (breaker === "closed" ? "up" : `breaker-${breaker}`) : "down";
}

let terms = null;

// Each breaker is an item of a list, which stays where it is.
function showBreakers(breakers) {
  const list = byId("breakers");
  while (list.children.length < breakers.length)
    list.append(make("li"));
  breakers.forEach((breaker, i) => {
    list.children[i].dataset.breaker = breaker.name;
    list.children[i].dataset.state = breaker.state;
    setText(list.children[i], breakerText(breaker));
  });
}

// guard: of Lane.guard; figures: of Lane.figures.
export function showGuard(guard, figures) {
  byId("guard").hidden = false;
  terms ??= new Terms(byId("guard-figures"));
  showBreakers(guard.breakers);
  byId("redis").dataset.state = redisState(guard.redis);
  setText(byId("redis"), redisText(guard.redis));
  setText(byId("limit"), count(guard.limit));
  setText(byId("limit-text"), `is the bound now; ${count(guard.most)} its ceiling, ` +
    `${count(guard.loads)} under way`);
  terms.set([
    ["Loads refused/s", rate(figures.rate.refused)],
    ["Stale answers/s", rate(figures.rate.stale)],
    ["Undelivered invalidations", count(guard.undelivered)],
  ]);
}

// Tells of each breaker that opens, and of it once it is closed everywhere.
export class BreakerWatch {
  constructor(onChange) {
    this.onChange = onChange;
    this.isClosed = new Map(); // by name
  }

  look(guard) {
    for (const { name, state } of guard?.breakers ?? []) {
      const isClosed = state === "closed", before = this.isClosed.get(name);
      this.isClosed.set(name, isClosed);
      if (before !== undefined && before !== isClosed)
        this.onChange(name, isClosed);
    }
  }
}
