// The buttons and the sliders: what the stage offers, and what state it is in.
import { ask, byId, count, make, sentence, setText } from "./text.js";

const GROUPS = [
  ["Expiries and changes", ["expire-all", "expire-hottest", "change-price"]],
  ["A process fails", ["kill-loader"]],
  ["The database fails", ["db-down", "slow-db"]],
  ["Redis fails", ["kill-redis", "leave-redis", "stop-redis", "kill-primary",
    "empty-redis"]],
];
const OF_TRAFFIC = ["absent"]; // beside the sliders

// A button that undoes what it did: the name of the second action, and its states.
const UNDO = {
  "stop-redis": { name: "continue-redis", label: "Continue Redis",
    states: ["running", "stopped"] },
  "kill-redis": { name: "start-redis", label: "Start Redis",
    states: ["its data is lost", "down, data lost"] },
  "kill-primary": { name: "start-primary", label: "Start it again",
    states: ["a replica takes over", "one is down"] },
  "leave-redis": { name: "start-redis", label: "Start Redis",
    states: ["its data is kept", "down, data kept"] },
  "db-down": { name: "db-up", label: "Start the database",
    states: ["running", "down"] },
  "slow-db": { name: "restore-db", label: "Restore the database",
    states: ["as usual", "slow"] },
};
const SECOND = Object.values(UNDO).map((undo) => undo.name);

// Some wait for a thing to happen, such as a load in which to kill a process.
const PATIENCE_MS = 60000;

const buttons = new Map(); // by name: { button, state, action, isOn }

function tell(text, isBad) {
  const done = byId("done");
  done.classList.toggle("bad", isBad);
  setText(done, sentence(text));
}

async function press(entry) {
  const { button, action, isOn } = entry;
  if (button.getAttribute("aria-disabled") === "true")
    return;
  const name = isOn ? UNDO[action.name].name : action.name;
  // Not the attribute disabled, which would take the focus away.
  button.setAttribute("aria-disabled", "true");
  try {
    const told = await ask(`/actions/${name}`, { body: {},
      patience_ms: PATIENCE_MS });
    tell(told.text, false);
  } catch (error) {
    tell(`${button.textContent}: ${error.message}`, true);
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

function makeButton(action) {
  const button = make("button", action.label, { type: "button",
    "data-action": action.name });
  const entry = { button, action, isOn: false, state: null };
  const place = make("span", null, { class: "place" });
  place.append(button);
  button.classList.toggle("main", action.name === "expire-all");
  if (UNDO[action.name]) {
    entry.state = make("span", "", { class: "state", id: `state-${action.name}` });
    button.setAttribute("aria-describedby", entry.state.id);
    place.append(entry.state);
  }
  button.addEventListener("click", () => press(entry));
  buttons.set(action.name, entry);
  return place;
}

function makeGroup(title, actions) {
  const group = make("fieldset", null, { class: "group" });
  const row = make("div");
  row.append(...actions.map(makeButton));
  group.append(make("legend", title), row);
  return group;
}

function makeButtons(actions) {
  const offered = new Map(actions.filter((a) => !SECOND.includes(a.name))
    .map((a) => [a.name, a]));
  const take = (names) => names.map((name) => {
    const action = offered.get(name);
    offered.delete(name);
    return action;
  }).filter(Boolean);
  byId("of-traffic").replaceChildren(...take(OF_TRAFFIC).map(makeButton));
  const groups = GROUPS.map(([title, names]) => [title, take(names)]);
  groups.push(["More", [...offered.values()]]);
  byId("buttons").replaceChildren(...groups.filter(([, list]) => list.length > 0)
    .map(([title, list]) => makeGroup(title, list)));
}

function showState(entry, isOn) {
  const undo = UNDO[entry.action.name];
  entry.isOn = isOn;
  if (!undo)
    return;
  setText(entry.button, isOn ? undo.label : entry.action.label);
  setText(entry.state, undo.states[isOn ? 1 : 0]);
  for (const element of [entry.button, entry.state])
    element.dataset.on = String(isOn);
}

export function showActions(actions) {
  const names = (list) => list.map((a) => a.name).join();
  const shown = [...buttons.keys()].sort().join();
  const offered = actions.filter((a) => !SECOND.includes(a.name));
  if (names([...offered].sort((a, b) => a.name < b.name ? -1 : 1)) !== shown) {
    buttons.clear();
    makeButtons(actions);
  }
  for (const action of offered)
    showState(buttons.get(action.name), action.is_on === true);
}

// ------------------------------------------------------------------ sliders

const SEND_AFTER_MS = 250; // of rest: each change restarts the generators
let sending = null;
let isTouched = false; // by somebody, and not sent yet

function skewText(skew, items) {
  if (!items)
    return "";
  let sum = 0;
  for (let i = 1; i <= items; i++)
    sum += i ** -skew;
  const share = 100 / sum;
  return `Of ${count(items)} items the hottest gets ` +
    `${share < 1 ? share.toPrecision(1) : count(share)} % of the requests.`;
}

let items = 0;

function showValues() {
  const clients = byId("clients"), skew = byId("skew");
  setText(byId("clients-value"), count(clients.valueAsNumber));
  setText(byId("skew-value"), skew.valueAsNumber.toFixed(1));
  setText(byId("skew-text"), skewText(skew.valueAsNumber, items));
}

async function send() {
  sending = null;
  try {
    const told = await ask("/traffic", { body: {
      clients: byId("clients").valueAsNumber, skew: byId("skew").valueAsNumber } });
    tell(told.text ?? "the traffic has changed", false);
  } catch (error) {
    tell(`Traffic: ${error.message}`, true);
  } finally {
    isTouched = sending !== null;
  }
}

function onInput() {
  isTouched = true;
  showValues();
  clearTimeout(sending);
  sending = setTimeout(send, SEND_AFTER_MS);
}

export function showTraffic(traffic, itemCount) {
  items = itemCount;
  if (isTouched)
    return;
  const clients = byId("clients"), skew = byId("skew");
  clients.max = traffic.clients_max;
  skew.max = traffic.skew_max;
  clients.value = traffic.clients;
  skew.value = traffic.skew;
  clients.disabled = skew.disabled = false;
  showValues();
}

export function startControls() {
  byId("clients").addEventListener("input", onInput);
  byId("skew").addEventListener("input", onInput);
}
