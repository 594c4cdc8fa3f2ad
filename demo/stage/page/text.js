// How figures and elements are written. What comes from outside gets into the
// page only as text (textContent).

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const oneDigit = new Intl.NumberFormat("en", { minimumFractionDigits: 1,
  maximumFractionDigits: 1 });

export const tenth = (n) => oneDigit.format(n).replace(/\.0$/, "");

export const count = (n) => whole.format(n);

export const rate = (n) => n > 0 && n < 10 ? oneDigit.format(n) : whole.format(n);

export const share = (part) => part === null ? "–" : `${tenth(part * 100)} %`;

export function duration(ms) {
  if (ms === null || ms === undefined)
    return "–";
  if (ms < 10)
    return `${oneDigit.format(ms)} ms`;
  if (ms < 1000)
    return `${whole.format(ms)} ms`;
  if (ms < 120000)
    return `${oneDigit.format(ms / 1000)} s`;
  return ms < 7200000 ? `${whole.format(ms / 60000)} min`
    : `${whole.format(ms / 3600000)} h`;
}

export const timeOfDay = (ms) => new Date(ms).toLocaleTimeString("en-GB") +
  "." + String(Math.floor(ms % 1000)).padStart(3, "0");

export function times(n) {
  if (n === 1)
    return "once";
  if (n === 2)
    return "twice";
  return n === 0 ? "not at all" : `${whole.format(n)} times`;
}

export const sentence = (text) =>
  text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, "") + ".";

// Write only what has changed: the rest of the page is not laid out again, and
// what somebody has selected stays selected.
export function setText(element, text) {
  if (element.textContent !== text)
    element.textContent = text;
}

export function make(tag, text, attributes) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null)
    element.textContent = text;
  for (const [name, value] of Object.entries(attributes ?? {}))
    element.setAttribute(name, value);
  return element;
}

export const byId = (id) => document.getElementById(id);

export const clone = (id) => byId(id).content.firstElementChild.cloneNode(true);

// Said to a screen reader, and not shown.
export function say(text) {
  setText(byId("said"), text);
}

// A list of terms, each [name, value]; its elements are kept while the names are
// the same.
export class Terms {
  constructor(list) {
    this.list = list;
    this.names = "";
    this.values = [];
  }

  set(rows) {
    const names = JSON.stringify(rows.map((row) => row[0]));
    if (names !== this.names) {
      this.values = rows.map(() => make("dd"));
      this.list.replaceChildren(...rows.map((row, i) => {
        const pair = make("div");
        pair.append(make("dt", row[0]), this.values[i]);
        return pair;
      }));
      this.names = names;
    }
    rows.forEach((row, i) => setText(this.values[i], row[1]));
  }
}

// Ask the stage. Returns the body; fails with what it says was wrong.
export async function ask(path, { body, patience_ms = 10000 } = {}) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), patience_ms);
  try {
    const answer = await fetch(path, { signal: stop.signal, cache: "no-store",
      ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body),
        headers: { "Content-Type": "application/json" } }) });
    if (answer.ok)
      return await answer.json();
    const told = await answer.json().catch(() => ({}));
    throw new Error(told.error ?? `the stage answered ${answer.status}`);
  } catch (error) {
    if (error.name === "AbortError" || error instanceof TypeError)
      throw new Error("the stage does not answer");
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
