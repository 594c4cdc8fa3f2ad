"""The picture for a README or a talk: the database queries of one scenario per 100 ms over
time, with a panel for each strategy, all on the same scales, and a headline with the
figures. Labels have their own column, so that none hides a line or another label. The
colours, light or dark as the reader prefers, are of Okabe and Ito, which colour-blind
people can tell apart."""

import math

SLOT_S = 0.1
WIDTH, HEIGHT, FONT_PX, MARGIN = 1200, 675, 20, 40
LEFT, RIGHT, TOP, BOTTOM, GAP = 330, 1160, 150, 604, 26
LINE_PX, END_LABEL_W = 27, 250
TITLES = {"none": "no protection", "setnx": "SETNX lock", "snowshed": "snowshed",
          "snowshed-refresh": "early refresh"}

STYLE = """\
text{font:20px system-ui,sans-serif;fill:#59636e}
.ground{fill:#fff}.head{font-size:28px}.head{font-weight:700;fill:#1f2328}
.label{font-weight:700}.x{text-anchor:middle}.y{text-anchor:end}
text{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}
.grid{stroke:#d1d9e0}.event,.limit{stroke:#59636e;stroke-dasharray:3 4}
.line{fill:none;stroke-width:3;stroke-linejoin:round;stroke-linecap:round}.area{opacity:.18}
.none{--c:#d55e00}.setnx{--c:#9a6700}.snowshed{--c:#0072b2}.snowshed-refresh{--c:#007a5a}
.line{stroke:var(--c)}.area,.label{fill:var(--c)}
@media (prefers-color-scheme:dark){
text{fill:#9198a1;stroke:#0d1117}.ground{fill:#0d1117}.head{fill:#f0f6fc}.grid{stroke:#3d444d}\
.event,.limit{stroke:#9198a1}
.none{--c:#ff8a3d}.setnx{--c:#e8b339}.snowshed{--c:#56b4e9}.snowshed-refresh{--c:#2fc796}\
.area{opacity:.28}}"""


def round_step(length, steps):
    """1, 2 or 5 times a power of ten, so that at most this many steps make the length."""
    power = 10 ** math.floor(math.log10(length / steps))
    return next(power * factor for factor in (1, 2, 5, 10) if length / (power * factor) <= steps)


def multiples(step, end):
    return [step * n for n in range(math.floor(end / step + 1e-9) + 1)]


class Picture:
    def __init__(self, file, options, outcomes):
        self.file, self.options, self.outcomes = file, options, outcomes
        self.is_avalanche = outcomes[0]["scenario"] == "avalanche"
        self.seconds = max(SLOT_S, *(o["seconds"] for o in outcomes))
        most = max(1, *(n for o in outcomes for n in o["queries_per_100_ms"]))
        step = round_step(most, 2)
        self.high = math.ceil(most / step) * step
        self.panel_h = (BOTTOM - TOP - (len(outcomes) - 1) * GAP) / len(outcomes)

    def write(self, text):
        print(text, file=self.file)

    def text(self, x, y, text, kind=""):
        kind = f" class='{kind}'" if kind else ""
        self.write(f"<text{kind} x='{x:.1f}' y='{y:.1f}'>{text}</text>")

    def line(self, kind, x1, x2, y1, y2):
        self.write(f"<line class='{kind}' x1='{x1:.1f}' x2='{x2:.1f}' y1='{y1:.1f}' "
                   f"y2='{y2:.1f}'/>")

    def x(self, seconds):
        return LEFT + (RIGHT - LEFT) * seconds / self.seconds

    def bottom(self, panel):
        return TOP + (panel + 1) * self.panel_h + panel * GAP

    def y(self, panel, queries):
        return self.bottom(panel) - self.panel_h * queries / self.high

    # ------------------------------------------------------------------ parts

    def headline(self):
        """What happened, with the figures of the first and the last strategy."""
        first, last = self.outcomes[0], self.outcomes[-1]
        text = f"{first['keys']:,} items expire at once" if self.is_avalanche \
            else first["scenario"]
        text += f": {first['queries']:,} queries"
        if len(self.outcomes) > 1:
            text += f", or {last['queries']:,} with {TITLES[last['strategy']]}"
        return text

    def draw_head(self):
        o = self.options
        limit = f", {o.db_capacity} work at once" if o.db_capacity else ""
        self.write(f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}' "
                   f"viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>\n"
                   f"<title>{self.headline()}</title>\n<style>\n{STYLE}\n</style>\n"
                   "<rect class='ground' width='100%' height='100%'/>")
        self.text(MARGIN, 58, self.headline(), "head")
        self.text(MARGIN, 92, f"Database queries per 100 ms. {o.processes} processes of "
                  f"{o.threads} threads read; a query takes {o.load_ms} ms{limit}")

    def draw_scales(self, panel):
        """And the capacity of the database."""
        for queries in multiples(round_step(self.high, 2), self.high):
            y = self.y(panel, queries)
            self.line("grid", LEFT, RIGHT, y, y)
            self.text(LEFT - 12, y + 7, f"{queries:g}", "y")
        limit = self.options.db_capacity * SLOT_S * 1000 / max(self.options.load_ms, 1)
        if 0 < limit < self.high:
            self.line("limit", LEFT, RIGHT, self.y(panel, limit), self.y(panel, limit))
            if panel == 0:
                self.text(RIGHT, TOP - 14, "&#9476;&#9476; all that the database can do", "y")

    def draw_course(self, panel, o):
        """A step for each moment; it begins and ends at the axis."""
        points, bottom = [(LEFT, self.bottom(panel))], self.bottom(panel)
        for i, queries in enumerate(o["queries_per_100_ms"]):
            if i * SLOT_S < o["seconds"]:
                y = self.y(panel, queries)
                points += [(self.x(i * SLOT_S), y),
                           (self.x(min((i + 1) * SLOT_S, o["seconds"])), y)]
        points.append((self.x(o["seconds"]), bottom))
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.write(f"<polygon class='area' points='{text}'/>"
                   f"<polyline class='line' points='{text}'/>")
        for seconds in o["mark_s"]:  # what was done to the cache
            self.line("event", self.x(seconds), self.x(seconds), bottom, bottom - self.panel_h)
        if panel == 0 and o["mark_s"]:
            self.text(self.x(o["mark_s"][0]) - 6, TOP - 14, "&#9662; " + o["mark_text"])

    def draw_labels(self, panel, o):
        """The strategy and its figures beside the panel; and for an avalanche when it was over:
        behind the line's end, or in front of it, above the database's limit."""
        y = self.bottom(panel) - self.panel_h / 2 - LINE_PX / 2
        self.text(MARGIN, y, TITLES[o["strategy"]], "label")
        self.text(MARGIN, y + LINE_PX, f"{o['queries']:,} queries")
        self.text(MARGIN, y + 2 * LINE_PX, f"slowest call {o['max_ms'] / 1000:.1f} s")
        if self.is_avalanche:
            x, text = self.x(o["seconds"]), f"all read after {o['seconds']:.1f} s"
            if x + END_LABEL_W < RIGHT:
                self.text(x + 12, self.bottom(panel) - 14, text, "label")
            else:
                self.text(x - 12, self.bottom(panel) - self.panel_h * 0.65, text, "label y")

    def draw_seconds(self):
        for seconds in multiples(round_step(self.seconds, 8), self.seconds):
            self.text(self.x(seconds), BOTTOM + 28, f"{seconds:g}", "x")
        self.text((LEFT + RIGHT) / 2, BOTTOM + 56, "seconds" + (
            " after all items have expired" if self.is_avalanche else ""), "x")


def draw(file, options, outcomes):
    """Of one scenario."""
    p = Picture(file, options, outcomes)
    p.draw_head()
    for panel, o in enumerate(outcomes):
        p.write(f"<g class='{o['strategy']}'>")
        p.draw_scales(panel)
        p.draw_course(panel, o)
        p.draw_labels(panel, o)
        p.write("</g>")
    p.draw_seconds()
    p.write("</svg>")
