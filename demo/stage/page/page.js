// The page: shows what the stage tells, and what the instances report through it.
// Nothing on it is made up here; see counters.js for what is added.
import { Charts } from "./charts.js";
import { showActions, showTraffic, startControls } from "./controls.js";
import { EFFECT_MS, HISTORY_MS, Instance, Lane, SILENT_MS } from "./counters.js";
import { addEntryLane, followEntry, showHot } from "./entry.js";
import { BreakerWatch, breakerName, showGuard } from "./guard.js";
import { headlines } from "./headline.js";
import { showNodes } from "./nodes.js";
import { join } from "./stream.js";
import { Terms, ask, byId, clone, count, duration, make, rate, say, sentence,
  setText, share } from "./text.js";

const DRAW_MS = 250;
const DRAW_CALMLY_MS = 1000;
const HOT_MS = 2000;
const DESCRIBE_MS = 5000;

const WAYS = {
  none: { phrase: "without protection",
    way: "No protection: every caller that misses asks the database." },
  setnx: { phrase: "with a SETNX lock",
    way: "A SETNX lock: one caller asks, the others look again every 10 ms." },
  snowshed: { phrase: "with snowshed",
    way: "A lease: one caller asks, the others are told when it is there." },
};

const views = new Map(); // by lane: { lane, element, terms, asked, known }
const charts = new Charts();
let isHeld = false;

// -------------------------------------------------------------------- clock

// The instances' time: that of the news that took the shortest way here.
const CLOCK_STEP_MS = 5000;
let behind = null;

function setClock(t) {
  const difference = Date.now() - t;
  if (behind === null || difference < behind ||
      difference > behind + CLOCK_STEP_MS)
    behind = difference;
}

const now = () => Date.now() - (behind ?? 0);

// -------------------------------------------------------------- connections

let state = "connecting"; // then "live" or "lost"
let heardAt = performance.now();

const isLost = () => state === "lost" || performance.now() - heardAt > SILENT_MS;

// The stream of events has them only when they change.
function askLanes() {
  ask("/lanes").then(showLanes, () => {});
}

const LISTENERS = {
  state: (now) => {
    state = now;
    if (state === "live")
      askLanes();
  },
  sample: (sample) => {
    const view = views.get(sample.lane);
    const known = view?.known.get(sample.pid);
    setClock(sample.time_ms);
    known?.instance.add(sample);
    if (known)
      view.watch.look(view.lane.guard(now()));
  },
  mark: addMark,
  lanes: showLanes,
  price: notePrice,
  nodes: (told) => isHeld || showNodes(told),
};

function hear(name, data) {
  heardAt = performance.now();
  LISTENERS[name](data);
}

function addInstance(view, pid) {
  const item = make("li"), instance = new Instance(view.isKnown);
  view.lane.instances.set(pid, instance);
  view.known.set(pid, { item, instance, since: now() });
  const gone = view.gone.shift();
  if (gone)
    gone.replaceWith(item);
  else
    view.list.append(item);
}

// What is left of it is shown until another one is there.
function dropInstance(view, pid) {
  const { item, instance } = view.known.get(pid);
  instance.isGone = true;
  view.known.delete(pid);
  view.gone.push(item);
  item.dataset.state = "lost";
  setText(item, `process ${pid}: gone, another one is being started`);
}

function showConnections(t) {
  const texts = isLost() ? ["The stage is not reached, so nothing here is new. " +
    "Trying again."] : [];
  for (const { lane, known, gone } of views.values()) {
    for (const [pid, { item, instance, since }] of known) {
      const isAlive = lane.isAlive(instance, t);
      const isSilent = !isAlive && (instance.last() || t > since + SILENT_MS);
      item.dataset.state = isAlive ? "live" : isSilent ? "lost" : "connecting";
      setText(item, `process ${pid}: ` +
        (isAlive ? "reports" : isSilent ? "does not report" : "starts to report"));
      if (isSilent && !isLost())
        texts.push(`Process ${pid} of the lane ${lane.name} does not report.`);
    }
    if (gone.length > 0 && !isLost())
      texts.push(`A process of the lane ${lane.name} is gone, and is being started ` +
        "again.");
  }
  byId("lost").hidden = texts.length === 0;
  setText(byId("lost"), texts.join(" "));
}

function addView(name) {
  const element = clone("lane-template");
  const lane = new Lane(name);
  element.dataset.lane = name;
  setText(element.querySelector("h3"), name);
  setText(element.querySelector(".way"), WAYS[name]?.way ?? "");
  byId("lanes").append(element);
  views.set(name, { lane, element, known: new Map(), gone: [], isKnown: false,
    watch: new BreakerWatch(markBreaker),
    list: element.querySelector(".instances"),
    terms: new Terms(element.querySelector(".figures")),
    big: element.querySelector(".big"),
    asked: element.querySelector(".asked span") });
  charts.add(lane, element);
  addEntryLane(name);
}

function showInstances(view, instances) {
  for (const pid of view.known.keys())
    if (!instances.some((i) => i.pid === pid))
      dropInstance(view, pid);
  for (const { pid } of instances)
    if (!view.known.has(pid))
      addInstance(view, pid);
  view.isKnown = true;
}

function showLanes(told) {
  for (const { name, instances } of told.lanes) {
    if (!views.has(name))
      addView(name);
    showInstances(views.get(name), instances);
  }
  showActions(told.actions);
  showTraffic(told.traffic, told.items);
}

// -------------------------------------------------------------------- marks

// What is told of in the headline, and what ends it ("": nothing), unless another one
// does so first. What does not last is told of for EFFECT_MS.
const TELLING = { "expire-hottest": null, "expire-all": null, absent: null,
  "empty-redis": null, "kill-loader": null, "change-price": "",
  "slow-db": "restore-db", "db-down": "db-up", "kill-redis": "start-redis",
  "leave-redis": "start-redis", "kill-primary": "start-primary",
  "stop-redis": "continue-redis" };
const isTelling = (mark) => mark.action in TELLING;
const isDisturbing = (mark) => isTelling(mark) ||
  Object.values(TELLING).includes(mark.action);

const marks = []; // oldest first: { t, text, action, number, ago }

function addMark(told) {
  if (marks.some((m) => m.t === told.time_ms && m.text === told.text))
    return; // told again after a reconnection
  const mark = { t: told.time_ms, text: told.text, action: told.action,
    number: marks.length + 1, ago: make("span", "", { class: "ago" }) };
  const item = make("li", null, { "data-action": told.action ?? "" });
  item.append(make("span", String(mark.number), { class: "number" }), mark.ago,
    make("span", sentence(told.text)));
  marks.push(mark);
  byId("marks").prepend(item);
  byId("no-marks").hidden = true;
}

function markBreaker(name, isClosed) {
  const text = `${breakerName(name)} ${isClosed ? "closed" : "opened"} in the lane ` +
    "snowshed";
  addMark({ time_ms: now(), text, action: isClosed ? "breaker-close"
    : "breaker-open" });
  say(text);
}

function showMarks(t) {
  for (const mark of marks) {
    const s = Math.max(0, Math.round((t - mark.t) / 1000));
    setText(mark.ago, s < 100 ? `${s} s ago` : `${Math.round(s / 60)} min ago`);
  }
}

// The last of them, and until when what follows it is its own.
function lastTelling(t) {
  const i = marks.findLastIndex(isTelling);
  if (i < 0)
    return null;
  const next = marks.slice(i + 1).find(isDisturbing);
  const longest = TELLING[marks[i].action] === null ? EFFECT_MS : HISTORY_MS;
  const end = Math.min(marks[i].t + longest, next?.t ?? Infinity);
  return { mark: marks[i], end, isOver: t > end + SILENT_MS / 2 };
}

// Of what was done before each lane had reported there are no figures.
const wasSeen = (mark) => [...views.values()].every(({ lane }) =>
  lane.list().some((i) => i.samples[0]?.t <= mark.t));

const prices = new Map(); // of one change: { lane, old_ms, is_over } by instance
let change = null;

function notePrice(price) {
  if (price.change !== change)
    prices.clear();
  change = price.change;
  prices.set(`${price.lane} ${price.port}`, price);
}

// How long any instance of a lane has shown the old price.
function priceOf(lane) {
  const told = [...prices.values()].filter((price) => price.lane === lane.name);
  return { old_ms: Math.max(0, ...told.map((price) => price.old_ms)),
    isOld: told.some((price) => !price.is_over) };
}

function rowOf(lane, { mark, end }, seconds) {
  const row = lane.effect(mark.t, end);
  const opened = marks.find((m) => m.action === "breaker-open" &&
    m.t >= mark.t && m.t <= end);
  return { ...row, name: lane.name, phrase: WAYS[lane.name]?.phrase ?? lane.name,
    answers: row.answers / seconds,
    ...(mark.action === "change-price" ? priceOf(lane) : {}),
    ...(lane.guard(now()) ? { opened_ms: opened ? opened.t - mark.t : null } : {}) };
}

let effects = null; // of one mark: { mark, isOver, head, sub, name, bigs }

function measure(t) {
  const last = lastTelling(t);
  if (!last || !wasSeen(last.mark) ||
      (effects && effects.mark === last.mark && effects.isOver))
    return;
  const seconds = Math.max(0.5, (Math.min(last.end, t) - last.mark.t) / 1000);
  const rows = [...views.values()].map(({ lane }) => rowOf(lane, last, seconds));
  effects = { ...last, ...headlines(last.mark.text, rows, seconds) };
}

let told = null; // the mark that a screen reader was told of

function showEffects() {
  setText(byId("headline"), effects?.head ?? (views.size === 0
    ? "Waiting for the first figures."
    : "Expire everything, and see what becomes of the three lanes."));
  setText(byId("subline"), effects?.sub ?? "");
  [...views.values()].forEach((view, i) => {
    setText(view.big, effects?.bigs?.[i].big ?? "–");
    setText(view.asked, effects?.bigs
      ? `${effects.bigs[i].label} after no. ${effects.mark.number}` : "");
  });
  if (effects?.isOver && told !== effects.mark) {
    told = effects.mark;
    byId("headline").dataset.final = told.number;
    say(effects.head);
  }
}

// ------------------------------------------------------------------ drawing

function figureRows(f) {
  const of = (value, isKnown = f.isAlive) => isKnown ? value : "–";
  return [
    ["Answers/s", of(rate(f.rate.answers))],
    ["Queries/s", of(rate(f.rate.queries))],
    ["p50", of(duration(f.p50))],
    ["Queries alive", of(count(f.queriesAlive))],
    ["p99", of(duration(f.p99))],
    ["Callers waiting", of(count(f.waiting))],
    ["Hit ratio", of(share(f.hitRatio))],
    ["Loads/s", of(rate(f.rate.load))],
    ["Stale answers/s", of(rate(f.rate.stale))],
    ["Waited for a load/s", of(rate(f.rate.waited))],
    ["“No such item”/s", of(rate(f.rate.negative))],
    ["Not published/s", of(rate(f.rate.unpublished))],
    ["Errors/s", of(rate(f.rate.errors))],
    ["Errors so far", count(f.errors)],
  ];
}

function showFigures(view, t) {
  const figures = view.lane.figures(t), guard = view.lane.guard(t);
  if (guard && !view.hasBound) {
    view.hasBound = true;
    charts.addBound(view.lane, byId("bound"));
  }
  if (guard)
    showGuard(guard, figures);
  view.terms.set(figureRows(figures));
  for (const pair of view.terms.list.children)
    if (pair.firstChild.textContent === "Errors/s")
      pair.classList.toggle("bad", figures.rate.errors > 0);
}

// The lanes side by side, where their cards are not.
const COMPARED = ["Answers/s", "Errors/s", "p99", "Queries/s"];

function showCompared(t) {
  const lanes = [...views.values()].map(({ lane }) => ({ name: lane.name,
    figures: new Map(figureRows(lane.figures(t))) }));
  const row = (name, texts, tag) => {
    const tr = make("tr");
    tr.append(make("th", name, { scope: "row" }),
      ...texts.map((text, i) => make(tag, text, { "data-lane": lanes[i].name })));
    return tr;
  };
  byId("compared").replaceChildren(row("", lanes.map(({ name }) => name), "th"),
    ...(effects?.bigs ? [row(sentence(effects.name).slice(0, -1),
      effects.bigs.map(({ big }) => big), "td")] : []), ...COMPARED.map((name) => row(name, lanes.map(({ figures }) => figures.get(name)),
      "td")));
}

const due = { hot: 0, describe: 0 };

function isDue(name, every_ms) {
  const t = performance.now();
  if (t < due[name])
    return false;
  due[name] = t + every_ms;
  return true;
}

function showHottest(t) {
  const wanted = new Map();
  for (const { lane } of views.values())
    lane.addHot(wanted, t);
  if (wanted.size > 0)
    showHot(wanted);
}

function draw() {
  const t = now();
  for (const { lane } of views.values()) {
    lane.advance(t);
    lane.forget(t);
  }
  showConnections(t);
  measure(t);
  if (isHeld || document.hidden)
    return;
  for (const view of views.values())
    showFigures(view, t);
  showCompared(t);
  showEffects();
  showMarks(t);
  charts.draw(t, marks);
  if (isDue("describe", DESCRIBE_MS))
    charts.describe();
  if (isDue("hot", HOT_MS))
    showHottest(t);
  if (state === "live")
    followEntry(performance.now());
}

function hold() {
  isHeld = !isHeld;
  byId("hold").setAttribute("aria-pressed", String(isHeld));
  say(isHeld ? "The picture is held." : "The picture goes on.");
}

function start() {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const run = () => {
    draw();
    setTimeout(run, calm.matches ? DRAW_CALMLY_MS : DRAW_MS);
  };
  startControls();
  byId("hold").addEventListener("click", hold);
  askLanes();
  join(hear);
  run();
}

start();
