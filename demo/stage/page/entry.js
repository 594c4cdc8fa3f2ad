// The hottest items, and what Redis has of the one that is selected.
import { Terms, ask, byId, clone, count, duration, make, say, setText,
  timeOfDay } from "./text.js";

const SHOWN = 10;
const ASK_MS = 1000;
const PATIENCE_MS = 2000;

let selected = null;
let isChosen = false; // by somebody: the hottest is followed until then
let isAsking = false;
let askedAt = -Infinity;
const lanes = []; // { name, why, terms }
const rows = []; // { row, button, id }

// -------------------------------------------------------------------- items

function makeBar() {
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  const rect = (name, width) => {
    const r = document.createElementNS(ns, "rect");
    for (const [key, value] of [["class", name], ["width", width],
      ["height", 10], ["rx", 2]])
      r.setAttribute(key, value);
    svg.append(r);
    return r;
  };
  for (const [key, value] of [["class", "bar"], ["viewBox", "0 0 100 10"],
    ["preserveAspectRatio", "none"], ["aria-hidden", "true"]])
    svg.setAttribute(key, value);
  rect("track", 100);
  return { svg, fill: rect("fill", 0) };
}

function makeRow() {
  const item = make("li"), button = make("button", null, { type: "button" });
  const { svg, fill } = makeBar();
  const name = make("span"), often = make("span", "", { class: "often" });
  const row = { item, button, name, often, fill, id: null };
  button.append(name, svg, often);
  item.append(button);
  button.addEventListener("click", () => choose(row.id));
  return row;
}

function choose(id) {
  selected = id;
  isChosen = true;
  askedAt = -Infinity;
  say(`What Redis has of item ${id} is shown below.`);
  showSelected();
}

function showSelected() {
  for (const row of rows)
    row.button.setAttribute("aria-pressed", String(row.id === selected));
  setText(byId("entry-title"), selected === null
    ? "What Redis has of the selected item" : `What Redis has of item ${selected}`);
}

// While somebody points at the list or has the focus in it, it keeps its order.
const isInUse = (list) => list.matches(":hover") ||
  list.contains(document.activeElement);

function orderOf(wanted, list) {
  if (isInUse(list) && rows.length > 0)
    return rows.map((row) => [row.id, wanted.get(row.id) ?? 0]);
  return [...wanted].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, SHOWN);
}

// wanted: how often each id was wanted lately.
export function showHot(wanted) {
  const list = byId("hot"), order = orderOf(wanted, list);
  const most = Math.max(1, ...order.map(([, n]) => n));
  while (rows.length < order.length) {
    rows.push(makeRow());
    list.append(rows[rows.length - 1].item);
  }
  while (rows.length > order.length)
    rows.pop().item.remove();
  order.forEach(([id, n], i) => {
    const row = rows[i];
    row.id = id;
    setText(row.name, `item ${id}`);
    setText(row.often, count(n));
    row.fill.setAttribute("width", (100 * n / most).toFixed(1));
  });
  if (!isChosen && order.length > 0)
    selected = order[0][0];
  showSelected();
}

// -------------------------------------------------------------------- entry

const NAMES = { redis_key: "key in Redis", ttl_ms: "time to live", age_ms: "age",
  written_ms: "written at", fresh_until_ms: "fresh until", cost_ms: "load took",
  lease_left_ms: "lease ends in", refresh_left_ms: "refresh ends in",
  lock_ms: "lock ends in", is_stale: "stale", row_version: "row version",
  data_version: "data version", size: "size with header" };
const POINTS_IN_TIME = ["written_ms", "fresh_until_ms"];

function valueText(name, value) {
  if (value === null)
    return name === "ttl_ms" ? "none" : "–";
  if (typeof value === "boolean")
    return value ? "yes" : "no";
  if (name === "size")
    return `${value} bytes`;
  if (typeof value === "number" && POINTS_IN_TIME.includes(name))
    return timeOfDay(value);
  if (typeof value === "number" && name.endsWith("_ms"))
    return value < 0 ? "–" : duration(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

const rowsOf = (entry) => Object.entries(entry).map(([name, value]) =>
  [NAMES[name] ?? name.replaceAll("_", " "), valueText(name, value)]);

function holderText(holder) {
  if (!holder)
    return "nobody";
  const life = { true: "alive", false: "gone" }[holder.is_alive] ?? "not known";
  return `${holder.process}, flight ${holder.flight} (${life})`;
}

// The library's entry, as `snowshed get` tells of it.
function showEntry(lane, entry) {
  const { caller, cache, key, redis_key, type, ttl_ms, age_ms, holder, ...rest } = entry;
  setText(lane.why, caller?.text ?? "");
  lane.terms.set([["leaseholder", holderText(holder)],
    ...rowsOf({ age_ms: age_ms ?? null, ttl_ms: ttl_ms ?? null, type, ...rest,
      cache, key, redis_key }).filter(([, value]) => value !== "undefined")]);
}

// A plain key, and perhaps a lock.
function showPlain(lane, { ttl_ms, size, lock_ms }) {
  const isThere = ttl_ms !== null && ttl_ms !== -2;
  const isLocked = lock_ms !== null && lock_ms !== undefined && lock_ms >= 0;
  setText(lane.why, isThere ? "It would be a hit."
    : isLocked ? "It would look again every 10 ms until the lock is gone."
      : "It would ask the database.");
  lane.terms.set([
    ["leaseholder", isLocked ? `a lock, for another ${duration(lock_ms)}`
      : lane.name === "setnx" ? "nobody" : "there are none in this lane"],
    ["age", "not kept"],
    ["time to live", isThere ? valueText("ttl_ms", ttl_ms < 0 ? null : ttl_ms) : "–"],
    ["type", isThere ? "a plain string" : "none"],
    ["size", isThere && size !== undefined ? `${size} bytes` : "–"]]);
}

async function askLane(lane, id) {
  try {
    const told = await ask(`/entry?lane=${encodeURIComponent(lane.name)}&id=${
      encodeURIComponent(id)}`, { patience_ms: PATIENCE_MS });
    if (told.error)
      throw new Error(told.error);
    if (id !== selected)
      return;
    if (told.entry)
      showEntry(lane, told.entry);
    else
      showPlain(lane, told);
  } catch (error) {
    setText(lane.why, `Not known now: ${error.message.replace(/[?.]+$/, "")}. Before:`);
  }
}

// Once a second, and one after the other: the stage has one connection for them.
export async function followEntry(now) {
  if (isAsking || selected === null || now - askedAt < ASK_MS)
    return;
  isAsking = true;
  askedAt = now;
  for (const lane of lanes)
    await askLane(lane, selected);
  isAsking = false;
}

export function addEntryLane(name) {
  const article = clone("entry-template");
  article.dataset.lane = name;
  article.querySelector("h3").textContent = name;
  byId("entry").append(article);
  lanes.push({ name, why: article.querySelector(".why"),
    terms: new Terms(article.querySelector("dl")) });
}
