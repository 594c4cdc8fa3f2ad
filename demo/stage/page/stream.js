// The stage's events: one stream for all pages of a browser, which opens only six
// connections to a host. This file is the worker that these pages share; a page
// without such workers has a stream of its own.
const RETRY_MS = 1000;
const NAMES = ["sample", "mark", "lanes", "price", "nodes"];
const MARKS = 50; // that the stage repeats to a new listener, too

// Calls tell(name, data) with each event, and with "state" and "live" or "lost".
export function listen(tell) {
  const source = new EventSource("/events");
  source.onopen = () => tell("state", "live");
  source.onerror = () => {
    tell("state", "lost");
    // The browser gives up where the answer is no stream, such as a 503.
    if (source.readyState === EventSource.CLOSED)
      setTimeout(() => listen(tell), RETRY_MS);
  };
  for (const name of NAMES)
    source.addEventListener(name, ({ data }) => tell(name, JSON.parse(data)));
}

// For pages that come later.
function keep(marks, mark) {
  marks.push(mark);
  if (marks.length > MARKS)
    marks.shift();
}

function share() {
  const pages = new Set(), marks = [];
  let state = null;
  listen((name, data) => {
    if (name === "state")
      state = data;
    else if (name === "mark")
      keep(marks, data);
    for (const page of pages)
      page.postMessage([name, data]);
  });
  globalThis.onconnect = ({ ports: [page] }) => {
    pages.add(page);
    page.onmessage = () => pages.delete(page); // it leaves
    for (const mark of marks)
      page.postMessage(["mark", mark]);
    if (state)
      page.postMessage(["state", state]);
  };
}

// For a page: as listen.
export function join(tell) {
  if (!globalThis.SharedWorker) {
    listen(tell);
    return;
  }
  const { port } = new SharedWorker("/stream.js", { type: "module" });
  port.onmessage = ({ data: [name, data] }) => tell(name, data);
  addEventListener("pagehide", () => port.postMessage("leave"));
  addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
}

if (globalThis.SharedWorkerGlobalScope)
  share();
