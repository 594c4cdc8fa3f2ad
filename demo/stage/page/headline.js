// What is said of an action: what differs most between the lanes. No DOM in here.
import { count, duration, rate, sentence, tenth, times } from "./text.js";

const several = (n, one, more) => `${count(n)} ${n === 1 ? one : more}`;

// What can differ. first and next: of the first lane and the others, as parts of one
// sentence; big and label: above a lane's charts; floor: what is too small to matter.
const MEASURES = [
  { of: (row) => row.errors, floor: 1, big: count, name: "failed requests",
    label: (n) => n === 1 ? "failed request" : "failed requests",
    first: (n) => n === 0 ? "no request failed"
      : `${several(n, "request", "requests")} failed`,
    next: (n) => n === 0 ? "none" : count(n) },
  { of: (row) => row.old_ms, floor: 200, big: (ms) => ms === 0 ? "0 s" : duration(ms), name: "old price shown for",
    label: () => "of the old price",
    first: (ms, row) => ms === 0 ? "the old price was not shown"
      : `the old price was shown for ${duration(ms)}${row.isOld ? ", and still is" : ""}`,
    next: (ms, row) => ms === 0 ? "not at all"
      : `for ${duration(ms)}${row.isOld ? ", and still is" : ""}` },
  { of: (row) => row.slowest, floor: 100, big: duration, name: "slowest answer",
    label: () => "for the slowest answer",
    first: (ms) => `the slowest answer took ${duration(ms)}`, next: duration },
  { of: (row) => row.answers, floor: 10, big: rate, name: "answers per second",
    label: () => "answers per second",
    first: (n) => `${rate(n)} requests per second were answered`, next: rate },
  { of: (row) => row.queries, floor: 1, big: count, name: "database queries",
    label: (n) => n === 1 ? "database query" : "database queries",
    first: (n) => `the database was asked ${times(n)}`, next: times },
];
const ALIKE = 1.5; // what differs by less is not worth a headline
const SECOND = 3; // nor by less than this, a second sentence

function difference(measure, rows) {
  const values = rows.map(measure.of);
  if (values.some((value) => value === null || value === undefined))
    return 0;
  return (Math.max(...values) + measure.floor) / (Math.min(...values) + measure.floor);
}

const tell = (measure, rows) => sentence(rows.map((row, i) =>
  `${row.phrase} ${(i === 0 ? measure.first : measure.next)(measure.of(row), row)}`)
  .join(", "));

const joined = (texts) => texts.length < 2 ? texts.join("")
  : `${texts.slice(0, -1).join(", ")} and ${texts[texts.length - 1]}`;

const shortly = (measure, rows) => `${measure.name} ${joined(rows.map((row) =>
  measure.of(row) === 0 ? "0" : measure.big(measure.of(row))))}`;

// How a lane went on that has a guard.
function guarded({ phrase, stale, opened_ms }) {
  const parts = [];
  if (stale > 0)
    parts.push(`${several(stale, "answer was", "answers were")} stale`);
  if (opened_ms !== null)
    parts.push(`the breaker opened after ${duration(opened_ms)}`);
  return parts.length > 0 ? sentence(`${phrase} ${joined(parts)}`) : "";
}

// rows: of each lane what Lane.effect says, with its phrase, answers per second, what
// is known of the old price (old_ms, isOld), and if it has a guard, after what time its
// breaker opened (opened_ms, null).
export function headlines(text, rows, seconds) {
  const found = MEASURES.map((measure) =>
    ({ measure, ratio: difference(measure, rows) })).filter(({ ratio }) => ratio > 0)
    .sort((a, b) => b.ratio - a.ratio);
  const told = found.filter(({ ratio }, i) => ratio > (i === 0 ? ALIKE : SECOND))
    .slice(0, 2).map(({ measure }) => measure);
  const rest = found.map(({ measure }) => measure).filter((m) => !told.includes(m));
  const said = told.length > 0 ? told.map((measure) => tell(measure, rows))
    : ["So far the lanes go on alike."];
  const guards = rows.filter((row) => row.opened_ms !== undefined).map(guarded);
  const measure = told[0] ?? found[0]?.measure;
  return { head: [sentence(text), ...said].join(" "),
    sub: [`In these ${tenth(seconds)} seconds (${joined(rows.map((row) => row.name))}): ` +
      [...rest.map((m) => shortly(m, rows)), "most callers of a process that waited " +
      `at a time ${joined(rows.map((row) => count(row.waiting)))}`].join("; ") + ".",
    ...guards].join(" ").trim(),
    name: measure?.name, bigs: measure ? rows.map((row) => ({ big: measure.big(measure.of(row)),
      label: measure.label(measure.of(row)) })) : null };
}
