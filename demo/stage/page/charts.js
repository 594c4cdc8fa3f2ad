// The charts: one per lane and metric, with the same scale in each lane, the last
// minute from left to right, and a dotted line at each mark. Chart is Chart.js 3
// or 4, a global of /chart.js.
import { HISTORY_MS } from "./counters.js";

const RIGHT_PX = 72; // where the lines are labelled
const LABEL_PX = 12;
const FONT = 'system-ui, "Liberation Sans", sans-serif';

const METRICS = [
  { title: "Answers and failed requests per second", least: 20,
    lines: [{ name: "answers", label: "ok" },
      { name: "errors", label: "failed", isFilled: true, color: "--bad" }] },
  { title: "Latency of answers in milliseconds", least: 20,
    lines: [{ name: "p99", label: "p99" },
      { name: "p50", label: "p50", dash: [3, 3] }] },
  { title: "Database queries per second", least: 20, hasTimes: true,
    lines: [{ name: "queries", isFilled: true }] },
];

// Of the lane that has a bound on its loads.
const BOUND = [
  { title: "Loads at a time, and the bound on them", least: 4, hasTimes: true,
    lines: [{ name: "loads", label: "now", isFilled: true, isWhole: true },
      { name: "limit", label: "bound", isWhole: true },
      { name: "most", label: "most", dash: [3, 3], isWhole: true }] },
];

const compact = new Intl.NumberFormat("en",
  { notation: "compact", maximumSignificantDigits: 3 });
// A line's name leaves less room.
const shorter = new Intl.NumberFormat("en",
  { notation: "compact", maximumSignificantDigits: 2 });
const short = (value) => value === 0 ? "0" : value < 10 ? value.toFixed(1)
  : value < 1000 ? String(Math.round(value)) : shorter.format(value);

function color(element, name) {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

// The next 1, 2 or 5 times a power of ten.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((n) => n * power >= value) * power;
}

// A chart's own field look says what the plugins draw and how: options are
// proxies, which make an array of objects slow.

// Dotted lines at the marks, with their numbers where there is room on top.
const marksPlugin = {
  id: "marks",
  beforeDatasetsDraw(chart) {
    const { ctx, chartArea: area, scales: { x } } = chart;
    const look = chart.look;
    ctx.save();
    ctx.font = `600 11px ${FONT}`;
    ctx.textAlign = "center";
    ctx.strokeStyle = ctx.fillStyle = look.quiet;
    ctx.setLineDash([2, 2]);
    let free = -Infinity; // from here on there is room for a number
    for (const mark of look.marks) {
      const at = Math.round(x.getPixelForValue(mark.x)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(at, area.top);
      ctx.lineTo(at, area.bottom);
      ctx.stroke();
      if (at >= free) {
        ctx.fillText(mark.number, at, area.top - 3);
        free = at + ctx.measureText(mark.number).width + 4;
      }
    }
    ctx.restore();
  },
};

// Each line's name and last value behind its end.
const labelsPlugin = {
  id: "labels",
  afterDatasetsDraw(chart) {
    const { ctx, chartArea: area, scales: { y } } = chart;
    const ends = [];
    for (const set of chart.data.datasets) {
      const last = set.data[set.data.length - 1];
      if (last && last.y !== null)
        ends.push({ at: y.getPixelForValue(last.y), text: set.label, set });
    }
    ends.sort((a, b) => b.at - a.at);
    let limit = area.bottom + LABEL_PX / 2;
    ctx.save();
    ctx.textBaseline = "middle";
    for (const end of ends) {
      const at = Math.min(end.at, limit - LABEL_PX / 2);
      limit = at - LABEL_PX / 2;
      ctx.font = `600 11px ${FONT}`;
      ctx.fillStyle = end.set.ink;
      ctx.fillText(end.text, area.right + 4, at);
    }
    ctx.restore();
  },
};

function optionsOf(metric) {
  return {
    animation: false,
    events: [],
    maintainAspectRatio: false,
    parsing: false,
    normalized: true,
    layout: { padding: { top: 12, right: RIGHT_PX } },
    plugins: { legend: { display: false }, tooltip: { enabled: false } },
    elements: { point: { radius: 0 }, line: { borderWidth: 2, tension: 0 } },
    scales: {
      x: { type: "linear", min: -HISTORY_MS / 1000, max: 0,
        grid: { drawTicks: false },
        ticks: { stepSize: 15, display: metric.hasTimes === true, maxRotation: 0,
          align: "inner", font: { size: 11, family: FONT }, padding: 4,
          callback: (value) => value === 0 ? "now" : `\u2212${-value} s` } },
      y: { min: 0, max: metric.least,
        afterFit: (scale) => { scale.width = 40; },
        grid: { drawTicks: false },
        ticks: { padding: 4, font: { size: 11, family: FONT },
          callback: (value) => compact.format(value) } },
    },
  };
}

const lookPlugin = {
  id: "look",
  beforeInit(chart) {
    chart.look = { marks: [], quiet: "" };
  },
};

function makeChart(canvas, metric) {
  return new Chart(canvas, {
    type: "line",
    data: { datasets: metric.lines.map((line) => ({ data: [],
      fill: line.isFilled === true, borderDash: line.dash ?? [] })) },
    options: optionsOf(metric),
    plugins: [lookPlugin, marksPlugin, labelsPlugin],
  });
}

export class Charts {
  constructor() {
    this.rows = []; // { lane, element, metrics, canvases, charts }
    matchMedia("(prefers-color-scheme: dark)")
      .addEventListener("change", () => this.paint());
  }

  add(lane, element, metrics = METRICS) {
    const canvases = [...element.querySelectorAll("canvas")];
    const charts = metrics.map((metric, i) => makeChart(canvases[i], metric));
    this.rows.push({ lane, element, metrics, canvases, charts });
    this.paint();
    this.describe();
  }

  addBound(lane, element) {
    this.add(lane, element, BOUND);
  }

  // Take the colours from the style sheet.
  paint() {
    for (const { element, charts, metrics } of this.rows) {
      const own = color(element, "--own");
      for (const chart of charts) {
        const line = color(element, "--line"), quiet = color(element, "--quiet");
        chart.look.quiet = quiet;
        for (const axis of Object.values(chart.options.scales)) {
          axis.grid.color = line;
          axis.ticks.color = quiet;
        }
        chart.data.datasets.forEach((set, i) => {
          const name = metrics[charts.indexOf(chart)].lines[i].color;
          set.borderColor = name ? color(element, name) : own;
          set.ink = name ? set.borderColor : color(element, "--own-ink");
          set.backgroundColor = set.borderColor + "33";
        });
        chart.update("none");
      }
    }
  }

  // marks: { t, number }.
  draw(now, marks) {
    for (const metric of [...METRICS, ...BOUND]) {
      const rows = this.rows.filter((row) => row.metrics.includes(metric));
      const top = this.scale(metric, rows);
      for (const row of rows)
        this.drawOne(row.charts[row.metrics.indexOf(metric)], row.lane, metric,
          top, now, marks);
    }
  }

  // The same for all lanes.
  scale(metric, rows) {
    let most = metric.least;
    for (const { lane } of rows)
      for (const bin of lane.bins)
        for (const line of metric.lines)
          most = Math.max(most, bin[line.name] ?? 0);
    return roundUp(most);
  }

  drawOne(chart, lane, metric, top, now, marks) {
    const x = (t) => (t - now) / 1000;
    metric.lines.forEach((line, i) => {
      const set = chart.data.datasets[i];
      set.data = lane.bins.map((bin) => ({ x: x(bin.t), y: bin[line.name] }));
      const last = lane.bins[lane.bins.length - 1]?.[line.name] ?? null;
      set.label = last === null ? ""
        : line.label && !line.isWhole ? `${line.label} ${short(last)}`
          : `${line.label ?? ""} ${compact.format(last)}`.trim();
    });
    chart.options.scales.y.max = top;
    chart.options.scales.y.ticks.stepSize = top / 2;
    chart.look.marks = marks.filter((m) => m.t > now - HISTORY_MS)
      .map((m) => ({ x: x(m.t), number: String(m.number) }));
    chart.update("none");
  }

  // What a screen reader says of a picture; the figures are beside it.
  describe() {
    for (const { lane, metrics, canvases } of this.rows)
      metrics.forEach((metric, i) => {
        const most = Math.max(0, ...lane.bins.map((bin) =>
          bin[metric.lines[0].name] ?? 0));
        canvases[i].setAttribute("aria-label", `${metric.title}, lane ` +
          `${lane.name}, over the last minute: at most ${compact.format(most)}`);
      });
  }
}
