// The page: connects to the stage and to each instance, and shows what they
// report. Nothing on it is made up here; see counters.js for what is added.
import { Charts } from "./charts.js";
import { showActions, showTraffic, startControls } from "./controls.js";
import { EFFECT_MS, HISTORY_MS, Instance, Lane, SILENT_MS } from "./counters.js";
import { addEntryLane, followEntry, showHot } from "./entry.js";
import { BreakerWatch, breakerName, showGuard } from "./guard.js";
import { Terms, ask, byId, clone, count, duration, make, rate, say, sentence,
  setText, tenth, times } from "./text.js";

const RETRY_MS = 1000;
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

const views = new Map(); // by lane: { lane, element, terms, asked, links }
const charts = new Charts();
let isHeld = false;
let stage = null; // the Link to it

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

// An EventSource that comes back whatever ended it. onState gets "connecting",
// "live" or "lost".
class Link {
  constructor(url, listeners, onState) {
    this.url = url;
    this.listeners = listeners;
    this.onState = onState;
    this.state = "connecting";
    this.heardAt = performance.now();
    this.open();
  }

  open() {
    this.source = new EventSource(this.url);
    this.source.onopen = () => this.set("live");
    this.source.onerror = () => this.fail();
    for (const [name, listener] of Object.entries(this.listeners))
      this.source.addEventListener(name, (event) => this.hear(event, listener));
  }

  hear(event, listener) {
    this.heardAt = performance.now();
    this.set("live");
    listener(JSON.parse(event.data));
  }

  // The browser gives up where the answer is no stream, such as a 503.
  fail() {
    this.set("lost");
    if (this.source.readyState === EventSource.CLOSED)
      this.timer = setTimeout(() => this.open(), RETRY_MS);
  }

  set(state) {
    if (this.state === state)
      return;
    this.state = state;
    this.onState(state);
  }

  // Open, but nothing comes: the process is stopped, or the machine is.
  checkSilence() {
    if (this.state === "live" && performance.now() - this.heardAt > SILENT_MS)
      this.set("lost");
  }

  close() {
    clearTimeout(this.timer);
    this.source.close();
  }
}

// The stream of events has them only when they change.
function askLanes() {
  ask("/lanes").then(showLanes, () => {});
}

function onStageState(state) {
  const lost = byId("lost");
  lost.hidden = state !== "lost";
  setText(lost, state === "lost"
    ? "The connection to the stage is lost. Trying to connect again." : "");
  if (state === "live")
    askLanes();
}

const LINK_TEXT = { connecting: "connecting", live: "connected",
  lost: "connection lost, trying again" };

function addLink(view, { url, pid }) {
  const item = make("li");
  const instance = new Instance(view.isKnown);
  const link = new Link(`${url}/events`, {
    sample: (sample) => {
      setClock(sample.time_ms);
      instance.add(sample);
      view.watch.look(view.lane.guard(now()));
    },
  }, (state) => showLink(view, url));
  view.lane.instances.set(`${url} ${pid}`, instance);
  view.links.set(url, { pid, link, item, instance });
  const gone = view.gone.shift();
  if (gone)
    gone.replaceWith(item);
  else
    view.list.append(item);
  showLink(view, url);
}

function showLink(view, url) {
  const known = view.links.get(url);
  if (!known)
    return;
  known.item.dataset.state = known.link.state;
  setText(known.item, `${new URL(url).host}, process ${known.pid}: ` +
    LINK_TEXT[known.link.state]);
}

// What is left of it is shown until another one is there.
function dropLink(view, url) {
  const { pid, link, item, instance } = view.links.get(url);
  link.close();
  instance.isGone = true;
  view.links.delete(url);
  view.gone.push(item);
  item.dataset.state = "lost";
  setText(item, `${new URL(url).host}, process ${pid}: gone, another one is ` +
    "being started");
}

function addView(name) {
  const element = clone("lane-template");
  const lane = new Lane(name);
  element.dataset.lane = name;
  setText(element.querySelector("h3"), name);
  setText(element.querySelector(".way"), WAYS[name]?.way ?? "");
  byId("lanes").append(element);
  views.set(name, { lane, element, links: new Map(), gone: [], isKnown: false,
    watch: new BreakerWatch(markBreaker),
    list: element.querySelector(".instances"),
    terms: new Terms(element.querySelector(".figures")),
    big: element.querySelector(".big"),
    asked: element.querySelector(".asked span") });
  charts.add(lane, element);
  addEntryLane(name);
}

// A process that was started again is another instance, even at the same port.
function showInstances(view, instances) {
  for (const [url, { pid }] of view.links)
    if (!instances.some((i) => i.url === url && i.pid === pid))
      dropLink(view, url);
  for (const instance of instances)
    if (!view.links.has(instance.url))
      addLink(view, instance);
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

// After these the database is asked, and the page counts how often. What comes
// of a price is told elsewhere, but it makes the lanes load, too.
const ASKING = ["expire-hottest", "expire-all", "absent", "empty-redis",
  "kill-loader"];
// These last, until what is named here, and make requests fail.
const OUTAGES = { "db-down": "db-up", "kill-redis": "start-redis",
  "leave-redis": "start-redis", "stop-redis": "continue-redis" };
const isOutage = (mark) => mark.action in OUTAGES;
const isTelling = (mark) => ASKING.includes(mark.action) || isOutage(mark);
const isDisturbing = (mark) => isTelling(mark) || mark.action === "change-price" ||
  Object.values(OUTAGES).includes(mark.action);

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
  let i = marks.length - 1;
  while (i >= 0 && !isTelling(marks[i]))
    i--;
  if (i < 0)
    return null;
  const next = marks.slice(i + 1).find(isDisturbing);
  const longest = isOutage(marks[i]) ? HISTORY_MS : EFFECT_MS;
  const end = Math.min(marks[i].t + longest, next?.t ?? Infinity);
  return { mark: marks[i], end, isOver: t > end + SILENT_MS / 2 };
}

// Of what was done before each lane had reported there are no figures.
const wasSeen = (mark) => [...views.values()].every(({ lane }) =>
  lane.list().some((i) => i.samples[0]?.t <= mark.t));

let effects = null; // of one mark: { mark, isOver, rows }

function measure(t) {
  const last = lastTelling(t);
  if (!last || !wasSeen(last.mark) ||
      (effects && effects.mark === last.mark && effects.isOver))
    return;
  const rows = [...views.values()].map(({ lane }) =>
    ({ lane, ...lane.effect(last.mark.t, last.end) }));
  const opened = marks.find((m) => m.action === "breaker-open" &&
    m.t >= last.mark.t && m.t <= last.end);
  effects = { ...last, rows, opened,
    seconds: tenth((Math.min(last.end, t) - last.mark.t) / 1000) };
}

const joined = (texts) => texts.length < 2 ? texts.join("")
  : `${texts.slice(0, -1).join(", ")} and ${texts[texts.length - 1]}`;

// How a lane went on that has a guard.
function outageParts({ lane, stale, alive, p99 }) {
  const guard = lane.guard(now()), { mark, opened } = effects;
  if (!guard)
    return [];
  const parts = [`a p99 of ${duration(p99)}`];
  if (alive > 0)
    parts.unshift(`at most ${count(alive)} database ` +
      `${alive === 1 ? "query" : "queries"} at a time, ` +
      `of ${count(guard.most)} allowed`);
  if (stale > 0)
    parts.unshift(`${count(stale)} stale ${stale === 1 ? "answer" : "answers"}`);
  if (opened)
    parts.push(`the breaker opened after ${duration(opened.t - mark.t)}`);
  return [`${WAYS[lane.name]?.phrase ?? lane.name} ${joined(parts)}`];
}

// What failed in each lane.
function outageLines() {
  const { mark, rows, seconds } = effects;
  const failed = rows.map(({ lane, errors }, i) =>
    `${WAYS[lane.name]?.phrase ?? lane.name} ` +
    (i > 0 ? (errors === 0 ? "none" : count(errors))
      : errors === 0 ? "no request failed"
        : `${count(errors)} ${errors === 1 ? "request" : "requests"} failed`));
  return [`${sentence(mark.text)} ${sentence(failed.join(", "))}`,
    sentence(`in these ${seconds} seconds ${rows.flatMap(outageParts).join("; ")}`)];
}

function headlines() {
  if (!effects)
    return [views.size === 0 ? "Waiting for the first figures."
      : "Expire the hottest item, and see how often the database is asked.",
    ""];
  const { mark, rows, seconds } = effects;
  if (isOutage(mark))
    return outageLines();
  const asked = rows.map(({ lane, queries }, i) =>
    `${WAYS[lane.name]?.phrase ?? lane.name} ` +
    (i === 0 ? `the database was asked ${times(queries)}` : times(queries)));
  return [`${sentence(mark.text)} ${sentence(asked.join(", "))}`,
    `In these ${seconds} seconds the latency’s p99 reached ${joined(
      rows.map((row) => duration(row.p99)))}; at most ${joined(
      rows.map((row) => count(row.waiting)))} callers of one process waited at a time.`];
}

let told = null; // the mark that a screen reader was told of

function showEffects() {
  const [head, sub] = headlines();
  setText(byId("headline"), head);
  setText(byId("subline"), sub);
  if (!effects)
    return;
  effects.rows.forEach(({ lane, queries, errors }) => {
    const view = views.get(lane.name);
    const n = isOutage(effects.mark) ? errors : queries;
    setText(view.big, count(n));
    setText(view.asked, isOutage(effects.mark)
      ? `failed ${n === 1 ? "request" : "requests"} since no. ${effects.mark.number}`
      : `database ${n === 1 ? "query" : "queries"} after no. ${effects.mark.number}`);
  });
  if (effects.isOver && told !== effects.mark) {
    told = effects.mark;
    byId("headline").dataset.final = told.number;
    say(head);
  }
}

// ------------------------------------------------------------------- prices

const prices = new Map(); // of one change, by lane and port
let change = null;

function showPrice(price) {
  if (price.change !== change)
    prices.clear();
  change = price.change;
  prices.set(`${price.lane} ${price.port}`, price);
  setText(byId("price-text"), `The price of item ${price.id} was changed.`);
  byId("price-box").hidden = false;
  const order = [...views.keys()];
  const sorted = [...prices.values()].sort((a, b) =>
    order.indexOf(a.lane) - order.indexOf(b.lane) || a.port - b.port);
  byId("price").tBodies[0].replaceChildren(...sorted.map((p) => {
    const row = make("tr");
    row.append(make("td", p.lane), make("td", `127.0.0.1:${p.port}`),
      make("td", !p.is_over ? `${duration(p.old_ms)}, and still does`
        : p.old_ms > 0 ? duration(p.old_ms) : "not at all",
      { class: p.is_over ? "" : "still" }));
    return row;
  }));
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
    ["Hits/s", of(rate(f.rate.redis))],
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

// Everything but what a connection tells of itself.
function draw() {
  const t = now();
  for (const { lane, links } of views.values()) {
    lane.advance(t);
    lane.forget(t);
    for (const { link } of links.values())
      link.checkSilence();
  }
  measure(t);
  if (isHeld || document.hidden)
    return;
  for (const view of views.values())
    showFigures(view, t);
  showEffects();
  showMarks(t);
  charts.draw(t, marks);
  if (isDue("describe", DESCRIBE_MS))
    charts.describe();
  if (isDue("hot", HOT_MS))
    showHottest(t);
  if (stage.state === "live")
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
  stage = new Link("/events", { mark: addMark, lanes: showLanes, price: showPrice },
    onStageState);
  run();
}

start();
