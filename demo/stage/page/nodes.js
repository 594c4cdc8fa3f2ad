// The servers of Redis: what each of them is, and what has become of a primary that
// was killed.
import { byId, count, make, setText } from "./text.js";

const COLUMNS = ["Server", "Role", "Slots", "Keys", "Commands per second"];
const known = (n) => n === undefined || n === null ? "–" : count(n);

// The port is enough: all of them are on this machine.
function roleOf({ role, of, state }) {
  const name = role === "replica" && of ? `replica of\u00a0${of}` : role ?? "–";
  return state === "up" ? name : `${name}, ${state}`;
}

function rowOf(node) {
  const row = make("tr", null, { "data-state": node.state,
    "data-role": node.role ?? "" });
  const name = make("th", null, { scope: "row" });
  const [host, port] = node.name.split(":");
  name.append(...(port ? [make("span", `${host}:`, { class: "host" }), port] : [host]));
  row.append(name, make("td", roleOf(node)),
    ...[node.slots, node.keys, node.commands_s].map((n) => make("td", known(n))));
  return row;
}

export function showNodes({ nodes, story }) {
  const head = make("tr");
  head.append(...COLUMNS.map((name) => make("th", name, { scope: "col" })));
  byId("nodes").hidden = false;
  byId("node-list").toggleAttribute("data-whole", !nodes.some(({ slots }) => slots));
  byId("node-list").replaceChildren(head, ...nodes.map(rowOf));
  setText(byId("story"), story);
}
