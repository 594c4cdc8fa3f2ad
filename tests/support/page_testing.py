"""The live page of demo/hotitems in a browser, and the stage behind it."""

import glob
import os
import re
import shutil
import sys
import tempfile
import unittest

try:
    from selenium import webdriver
except ImportError:  # the first python3 in PATH need not be the system's
    if sys.executable == "/usr/bin/python3":
        raise
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
from hotitems_testing import OwnDatabase, OwnRedis, wait_for
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys  # noqa: F401
from stage_testing import LANES, Stage, load_tables

# Few enough items that all of them are cached after a moment: then nothing is
# loaded but what a button makes the lanes load.
ITEMS = 100
CLIENTS = 60
WIDE, NARROW, NARROWEST = (1280, 900), (390, 844), (360, 740)
LOOK_S = 0.05  # between two looks at the page, which draws four times a second
PROGRAMS = []
OUTPUT = ""

# The elements with a text of their own whose contrast with what is behind them is
# below WCAG 2's AA, and by how much.
CONTRAST = """
const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const color = parse(getComputedStyle(e).backgroundColor);
    if (color.length === 3 || color[3] > 0)
      return color;
  }
  return [255, 255, 255];
};
return [...document.body.querySelectorAll("*")].filter((e) =>
  e.checkVisibility() && [...e.childNodes].some((n) =>
    n.nodeType === Node.TEXT_NODE && n.data.trim() !== "")).map((e) => {
  const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  return `${ratio.toFixed(2)} ${e.tagName} ${e.className} ${e.textContent}`;
}).filter((text) => parseFloat(text) < 4.5);
"""


def await_that(what, condition, *arguments):
    """Wait until it returns something true, and return that."""
    return wait_for(lambda: condition(*arguments), what, LOOK_S)


def start_stage(programs, redis, *options, database=None):
    """Start a stage on which no server comes back by itself."""
    return Stage(redis, "--items", str(ITEMS), "--clients", str(CLIENTS), "--outage-s", "600",
                 *options, programs=programs, database=database)


def start_browser(profile):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
    for argument in ("--headless=new", "--disable-gpu", "--no-first-run",
                     "--disable-dev-shm-usage", "--no-proxy-server", "--hide-scrollbars",
                     "--disable-background-networking", "--disable-extensions",
                     "--user-data-dir=" + profile):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = shutil.which("chromedriver") or "/usr/bin/chromedriver"
    return webdriver.Chrome(service=Service(driver), options=options)


class Page:
    """The page in the browser, by the texts that a visitor sees."""

    def __init__(self, browser, port):
        self.browser = browser
        self.url = f"http://127.0.0.1:{port}/"

    def open(self):
        self.browser.get(self.url)
        await_that("every lane reports", lambda: all(
            self.figure(lane, "Answers/s") > 0 for lane in LANES))

    def resize(self, width, height):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": width < 500})

    def prefer(self, scheme):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def run(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def picture(self, path):
        """Take a picture of the whole page, in a window of that height."""
        width, height = self.run("const e = document.documentElement;"
                                 "return [e.clientWidth, e.scrollHeight];")
        self.resize(width, height)
        self.browser.execute_async_script("""
            requestAnimationFrame(() => requestAnimationFrame(arguments[0]));""")
        drawn = self.points("none", 0)
        await_that("the charts are drawn", lambda: self.points("none", 0) != drawn)
        self.browser.save_screenshot(path)

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        """Read it in one step, because the page changes."""
        return self.run("return document.querySelector(arguments[0])?.textContent"
                        " ?? ''", selector)

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])]"
                        ".map((e) => e.textContent)", selector)

    def figure(self, lane, name):
        """A figure of a lane; -1 while there is none."""
        text = self.run("""
            const lane = document.querySelector(`#lanes [data-lane=${arguments[0]}]`);
            return [...lane?.querySelectorAll(".figures div") ?? []].find((pair) =>
              pair.firstChild.textContent === arguments[1])?.lastChild.textContent;
            """, lane, name)
        found = re.match(r"[\d.,]+", text or "")
        return float(found.group().replace(",", "")) if found else -1

    def big(self, lane):
        text = self.text(f"#lanes [data-lane={lane}] .big").replace(",", "")
        return int(text) if text.isdigit() else -1

    def points(self, lane, chart):
        """Returns what a chart has drawn: [x, y] of its first line."""
        return self.run("""
            const canvas = document.querySelectorAll(
              `#lanes [data-lane=${arguments[0]}] canvas`)[arguments[1]];
            return Chart.getChart(canvas).data.datasets[0].data.map((p) =>
              [p.x, p.y]);""", lane, chart)

    def top(self, lane, chart, place="#lanes"):
        return self.run("""
            const canvas = document.querySelectorAll(
              `${arguments[2]} [data-lane=${arguments[0]}] canvas`)[arguments[1]];
            return Chart.getChart(canvas).options.scales.y.max;""", lane, chart, place)

    def button(self, action):
        return self.find(f"[data-action={action}]:is(button)")

    def marks(self, action):
        """The numbers of its marks, the last one first."""
        return [int(text) for text in
                self.texts(f"#marks [data-action={action}] .number")]

    def press(self, button, action, mark=None):
        """Press and wait for the mark, which is that of the action. A refusal
        fails."""
        earlier = self.marks(mark or action)[:1]
        before = self.text("#done")
        button.click()
        await_that(f"{action} has a mark; the page says '{before}'", lambda:
                   self.marks(mark or action)[:1] != earlier or self.refusal())
        await_that(f"{action} has ended", lambda:
                   button.get_attribute("aria-disabled") is None)
        if self.refusal():
            raise AssertionError(f"{action}: " + self.text("#done"))

    def set_clients(self, count):
        """Move the slider, and wait until the traffic has changed."""
        marks = self.marks("traffic")
        self.run("""
            const slider = arguments[0];
            slider.value = arguments[1];
            slider.dispatchEvent(new Event("input", { bubbles: true }));""",
            self.find("#clients"), count)
        await_that("the traffic has a mark", lambda: self.marks("traffic") != marks)
        if self.text("#clients-value") != str(count):
            raise AssertionError("the slider is at " + self.text("#clients-value"))

    def refusal(self):
        return self.run("return document.getElementById('done')"
                        ".classList.contains('bad')")

    def instances(self, lane):
        return self.texts(f"#lanes [data-lane={lane}] .instances li")

    def processes(self, lane):
        return [int(pid) for text in self.instances(lane)
                for pid in re.findall(r"process (\d+)", text)]

    def are_connected(self):
        return all(len(self.instances(lane)) == 2 and
                   all("reports" in text for text in self.instances(lane))
                   for lane in LANES)

    def await_quiet(self):
        """Wait until nothing is loaded any longer: no lane runs a query, and
        everything that is shown is newer than the last query."""
        await_that("the lanes are quiet", lambda: self.are_connected() and all(
            self.figure(lane, "Queries/s") == 0 and
            self.figure(lane, "Queries alive") == 0 for lane in LANES))

    def expire_and_count(self):
        """Expire it, and wait until the page has counted the results."""
        self.press(self.button("expire-hottest"), "expire-hottest")
        number = self.marks("expire-hottest")[0]
        await_that("the page has counted", lambda: self.run(
            "return document.getElementById('headline').dataset.final") ==
            str(number))


class Case(unittest.TestCase):
    """The tests of a class share a page and its servers; each test leaves them as it
    found them."""

    options = ()  # of the stage
    start_redis = OwnRedis

    @classmethod
    def setUpClass(cls):
        cls.database = OwnDatabase()
        cls.addClassCleanup(cls.database.end)
        load_tables(cls.database.uri)
        cls.redis = cls.start_redis()
        cls.addClassCleanup(cls.redis.end)
        cls.stage = cls.start_stage()
        cls.addClassCleanup(lambda: cls.stage.end())
        profile = tempfile.mkdtemp(prefix="snowshed-page.")
        cls.addClassCleanup(shutil.rmtree, profile, ignore_errors=True)
        cls.browser = start_browser(profile)
        cls.addClassCleanup(cls.browser.quit)
        cls.page = Page(cls.browser, cls.stage.port)
        cls.page.open()

    @classmethod
    def start_stage(cls, *options):
        return start_stage(PROGRAMS, cls.redis, *cls.options, *options,
                           database=cls.database)

    def setUp(self):
        self.page.resize(*WIDE)
        self.addCleanup(self.keep_picture)

    def keep_picture(self):
        """Keep a picture of a failure, which the next test does not inherit."""
        outcome = getattr(self._outcome, "result", None)
        if outcome and any(test is self for test, _ in
                           outcome.failures + outcome.errors):
            self.browser.save_screenshot(
                os.path.join(OUTPUT, f"failed-{self._testMethodName}.png"))
            self.page.open()

    def look(self, name, width):
        await_that("the colours have changed", lambda: self.page.run(
            "return document.getAnimations().length === 0"))
        self.assertLessEqual(self.page.run(
            "return document.documentElement.scrollWidth"), width)
        self.assertEqual(self.page.run(CONTRAST), [])
        self.page.picture(os.path.join(OUTPUT, name + ".png"))

    def look_everywhere(self, prefix=""):
        self.addCleanup(self.page.prefer, "light")
        for name, size in (("wide", WIDE), ("narrow", NARROW),
                           ("narrowest", NARROWEST)):
            self.page.resize(*size)
            for scheme in ("light", "dark"):
                with self.subTest(name=name, scheme=scheme):
                    self.page.prefer(scheme)
                    self.look(f"{prefix}{name}-{scheme}", size[0])


def main():
    """Run the tests of a program with the arguments HOTITEMS SNOWSHED DIR."""
    global PROGRAMS, OUTPUT
    PROGRAMS, OUTPUT = sys.argv[1:3], sys.argv[3]
    os.makedirs(OUTPUT, exist_ok=True)
    for old in glob.glob(os.path.join(OUTPUT, "*.png")):
        os.remove(old)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
