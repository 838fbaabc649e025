"""The site in a real browser, from the file system: choose, hover, sort, keyboard, narrow and dark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report.site.made_up import ablation, active, entry, few_shot
from report.stream_examples import stream_record

from cl_cnaps.report.site import gather, write_site

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver import ActionChains, Keys  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs a browser: install Debian's packages chromium and chromium-driver",
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PAGES = ("index", "continual", "few-shot", "active", "ablations", "records")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    for encoding in ("moving", "first"):
        stream_record(runs, adaptation="film", encoding=encoding)
    stream_record(runs, model="transductive")
    stream_record(runs, n_tasks=10, benchmark="split-cifar100")
    few_shot(runs, [entry(), entry(shape="5-way 5-shot", accuracy={"mean": 0.82, "ci95": None})])
    active(runs)
    for which in ("metric", "refinement", "shots", "queries"):
        ablation(runs, which)
    return write_site(gather([runs]), tmp_path_factory.mktemp("out") / "site").parent


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture
def browser(started: Any) -> Iterator[Any]:
    """At its usual width and colours before each test; after each, without complaints or requests to a network."""
    look(started, 1280, "light")
    yield started
    assert [line for line in started.get_log("browser") if line["level"] in ("SEVERE", "WARNING")] == []
    for line in started.get_log("performance"):
        message = json.loads(line["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            assert not message["params"]["request"]["url"].startswith(("http", "ws", "ftp"))


def look(browser: Any, width: int, colours: str) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": colours}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def open_page(browser: Any, site: Path, name: str) -> None:
    browser.get("about:blank")  # so that a part after # is read anew
    page, _, part = name.partition("#")
    browser.get((site / f"{page}.html").as_uri() + (f"#{part}" if part else ""))


def all_of(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements(By.CSS_SELECTOR, selector))


def one(browser: Any, selector: str) -> Any:
    return browser.find_element(By.CSS_SELECTOR, selector)


def wait(browser: Any, until: Any) -> Any:
    return WebDriverWait(browser, 20).until(until)


def tip(browser: Any) -> str:
    found = one(browser, ".tip")
    wait(browser, lambda _: found.is_displayed())
    return str(found.text)


def marks(browser: Any, n: int) -> list[Any]:
    """The marks of the first chart, once it is drawn."""
    wait(browser, lambda _: len(all_of(browser, ".chart:first-child .mark")) == n)
    return all_of(browser, ".chart:first-child .mark")


def test_choosing_changes_the_charts_and_the_address(browser: Any, site: Path) -> None:
    open_page(browser, site, "continual")
    titles = [found.text for found in all_of(browser, "#bars figcaption strong")]
    assert titles == [f"First encoding, {head} head" for head in ("multi", "single")]
    Select(one(browser, "select[name=encoding]")).select_by_visible_text("all encodings")
    titles = [found.text for found in all_of(browser, "#bars figcaption strong")]
    assert titles == [f"{e} encoding, {h} head" for e in ("Moving", "First") for h in ("multi", "single")]
    Select(one(browser, "select[name=model]")).select_by_visible_text("Transductive CNAPS, frozen features")
    Select(one(browser, "select[name=head]")).select_by_visible_text("single")
    assert [f.text for f in all_of(browser, "#bars figcaption strong")] == ["First encoding, single head"]
    Select(one(browser, "select[name=benchmark]")).select_by_visible_text("split-cifar100")
    assert one(browser, "select[name=model]").get_attribute("value") == "Simple CNAPS, frozen features"
    assert len(marks(browser, 55)) == 55
    address = browser.current_url.partition("#")[2]
    assert "benchmark=split-cifar100" in address
    open_page(browser, site, f"continual#{address}")
    assert one(browser, "select[name=benchmark]").get_attribute("value") == "split-cifar100"


def test_a_bar_tells_its_numbers_to_the_mouse(browser: Any, site: Path) -> None:
    open_page(browser, site, "continual")
    bars = marks(browser, 6)
    panels = browser.execute_script("return JSON.parse(document.getElementById('bars-data').textContent)")
    panel = next(p for p in panels if (p["encoding"], p["model"]) == ("first", panels[0]["model"]))
    ActionChains(browser).scroll_to_element(bars[2]).move_to_element(bars[2]).perform()
    said = tip(browser).splitlines()
    step = panel["steps"][1]
    assert said == [
        f"{step['mean'][1]:.1f} ± {step['half'][1]:.1f} %",
        "task 2: classes 2 and 3",
        "after 2 of 3 tasks",
    ]
    ActionChains(browser).move_to_element(one(browser, "h2#steps")).perform()
    wait(browser, lambda _: not one(browser, ".tip").is_displayed())


def test_bars_are_reached_by_the_keyboard(browser: Any, site: Path) -> None:
    open_page(browser, site, "continual")
    bars = marks(browser, 6)
    assert [bar.get_attribute("tabindex") for bar in bars] == ["0", *["-1"] * 5]
    one(browser, "select[name=head]").send_keys(Keys.TAB)
    assert browser.switch_to.active_element == bars[0]
    assert "task 1: classes 0 and 1" in tip(browser)
    for key, place in ((Keys.ARROW_RIGHT, 1), (Keys.ARROW_DOWN, 3), (Keys.END, 5), (Keys.ARROW_UP, 5)):
        browser.switch_to.active_element.send_keys(key)
        assert browser.switch_to.active_element == bars[place]
        assert bars[place].get_attribute("aria-label").startswith(tip(browser).splitlines()[0])
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not one(browser, ".tip").is_displayed()
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait(browser, lambda _: "/records/stream-split-mnist-" in browser.current_url)


def test_sorting_orders_the_rows_and_says_so(browser: Any, site: Path) -> None:
    open_page(browser, site, "continual")
    header = all_of(browser, "#final-accuracy thead tr:nth-child(2) th")[1]  # MNIST, single head

    def values() -> list[str | None]:
        rows = all_of(browser, "#final-accuracy tbody tr")
        return [row.find_elements(By.TAG_NAME, "td")[1].get_attribute("data-value") for row in rows]

    assert header.get_attribute("aria-sort") == "none"
    button = header.find_element(By.TAG_NAME, "button")
    for key, direction in ((Keys.ENTER, "descending"), (Keys.SPACE, "ascending")):
        button.send_keys(key)
        assert header.get_attribute("aria-sort") == direction
        found = values()
        numbers = [float(value) for value in found if value is not None]
        assert numbers == sorted(numbers, reverse=direction == "descending")
        assert found[: len(numbers)] == [value for value in found if value is not None], "missing last"
    first = one(browser, "#final-accuracy thead th[rowspan]")
    first.find_element(By.TAG_NAME, "button").click()
    assert first.get_attribute("aria-sort") == "ascending"
    assert header.get_attribute("aria-sort") == "none"
    names = [row.get_attribute("data-value") for row in all_of(browser, "#final-accuracy tbody th")]
    assert names == sorted(names)


def test_rows_are_chosen_by_kind_and_found_by_text(browser: Any, site: Path) -> None:
    open_page(browser, site, "continual")
    one(browser, "[data-for=final-accuracy] input[value=paper]").click()
    shown = [row for row in all_of(browser, "#final-accuracy tbody tr") if row.is_displayed()]
    assert {row.get_attribute("data-kind") for row in shown} == {"here"}
    assert f"{len(shown)} of" in one(browser, "[data-for=final-accuracy] .shown").text
    one(browser, "details.long summary").click()
    one(browser, "[data-for=measures] input").send_keys("transductive single")
    assert sum(row.is_displayed() for row in all_of(browser, "#measures tbody tr")) == 1


def test_rows_are_compared_as_the_table_has_them(browser: Any, site: Path) -> None:
    open_page(browser, site, "few-shot")
    place = one(browser, ".compare[data-table=few-shot-mini-imagenet]")
    choice = Select(place.find_element(By.TAG_NAME, "select"))
    choice.select_by_visible_text("5-way 5-shot")
    ours = place.find_element(By.CSS_SELECTOR, "li[data-kind=here]")
    assert ours.find_element(By.CSS_SELECTOR, ".value").text == "82.0"
    assert "/records/evaluate-mini-imagenet-simple" in ours.find_element(By.TAG_NAME, "a").get_attribute(
        "href"
    )
    values = place.find_elements(By.CSS_SELECTOR, "li[data-kind] .value")
    listed = [float(v.text.split(" ")[0]) for v in values]
    assert listed == sorted(listed, reverse=True)
    left = [float(p.rect["x"]) for p in place.find_elements(By.CSS_SELECTOR, "li[data-kind] .point")]
    assert left == sorted(left, reverse=True)


def test_any_rows_are_compared_and_the_address_keeps_them(browser: Any, site: Path) -> None:
    open_page(browser, site, "index")
    place = one(browser, ".compare[data-table=front]")
    before = len(place.find_elements(By.CSS_SELECTOR, "li[data-kind]"))
    place.find_element(By.CSS_SELECTOR, ".choose summary").click()
    ticks = place.find_elements(By.CSS_SELECTOR, ".choices input")
    assert sum(tick.is_selected() for tick in ticks) == before > 1
    name = place.find_element(By.CSS_SELECTOR, ".choices label").text
    ticks[0].click()
    names = [found.text for found in place.find_elements(By.CSS_SELECTOR, "li[data-kind] .name")]
    assert len(names) == before - 1
    assert name not in names
    address = browser.current_url.partition("#")[2]
    open_page(browser, site, f"index#{address}")
    again = [found.text for found in all_of(browser, ".compare[data-table=front] li[data-kind] .name")]
    assert again == names


def test_tiles_are_of_equal_height_and_whiskers_are_intervals(browser: Any, site: Path) -> None:
    open_page(browser, site, "index")
    heights = {tile.rect["height"] for tile in all_of(browser, ".tile")}
    assert len(heights) == 1
    row = one(browser, ".compare li[data-kind=here]")
    point, whisker = (row.find_element(By.CSS_SELECTOR, name).rect for name in (".point", ".whisker"))
    assert whisker["x"] < point["x"] + point["width"] / 2 < whisker["x"] + whisker["width"]
    ticks = [int(tick.text) for tick in all_of(browser, ".compare .tick-label")]
    assert max(ticks) <= 100


def test_a_wide_table_tells_that_it_scrolls(browser: Any, site: Path) -> None:
    for width, shown in ((1300, False), (400, True)):
        look(browser, width, "light")
        open_page(browser, site, "index")
        wait(browser, lambda _: one(browser, ".hint") is not None)
        wait(browser, lambda _, shown=shown: one(browser, ".hint").is_displayed() == shown)


def test_the_continual_page_is_short(browser: Any, site: Path) -> None:
    look(browser, 1300, "light")
    open_page(browser, site, "continual")
    marks(browser, 6)
    assert browser.execute_script("return document.documentElement.scrollHeight") < 4000


def test_curves_of_active_learning(browser: Any, site: Path) -> None:
    open_page(browser, site, "active")
    points = marks(browser, 9)
    ActionChains(browser).scroll_to_element(points[4]).move_to_element(points[4]).perform()
    assert tip(browser).splitlines() == ["68.0 ± 1.0 %", "predictive entropy, 75 labels"]
    assert len(all_of(browser, ".canvas .curve")) == 3
    assert len({curve.get_attribute("stroke-dasharray") for curve in all_of(browser, ".canvas .curve")}) == 3


def test_numbers_are_rounded_as_in_the_tables(browser: Any, site: Path) -> None:
    """Whatever is drawn: 67.55 is stored as a little less, 71.25 as it is."""
    values = [67.55, 71.65, 65.55, 68.45, 71.25, 71.75, 0.05, 0.0, -0.04, -0.25, -0.75, -12.34, 100.0]
    values += [100 * number / 400 for number in range(0, 400, 3)]
    open_page(browser, site, "active")
    written = browser.execute_script("return arguments[0].map(window.report.tenths)", values)
    assert written == [f"{value:z.1f}".replace("-", "\N{MINUS SIGN}") for value in values]


def test_curves_of_ablations_need_no_choice(browser: Any, site: Path) -> None:
    open_page(browser, site, "ablations")
    wait(browser, lambda _: len(all_of(browser, ".canvas .curve")) == 4)
    recall, queries = all_of(browser, ".curves")
    assert not recall.find_elements(By.TAG_NAME, "select")
    point = recall.find_elements(By.CSS_SELECTOR, ".mark")[5]
    ActionChains(browser).scroll_to_element(point).move_to_element(point).perform()
    assert tip(browser).splitlines() == ["57.5 ± 1.4 %", "Transductive, 6-7 shots of the class"]
    point = queries.find_elements(By.CSS_SELECTOR, ".mark")[1]
    ActionChains(browser).scroll_to_element(point).move_to_element(point).perform()
    wait(browser, lambda _: tip(browser).splitlines() == ["50.1 ± 1.0 %", "Simple, 20 queries of each class"])


def test_the_colours_follow_the_system_until_the_reader_chooses(browser: Any, site: Path) -> None:
    def background() -> str:
        return str(
            browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
        )

    open_page(browser, site, "index")
    light = background()
    look(browser, 1280, "dark")
    dark = background()
    assert dark != light
    button = one(browser, "button.theme")
    wait(browser, lambda _: button.get_attribute("aria-pressed") == "true")
    button.send_keys(Keys.ENTER)
    assert background() == light
    open_page(browser, site, "continual")
    assert background() == light
    assert one(browser, "button.theme").get_attribute("aria-pressed") == "false"
    browser.execute_script("localStorage.clear()")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_narrow_page_scrolls_only_down_and_text_can_be_read(browser: Any, site: Path, colours: str) -> None:
    look(browser, 400, colours)
    record = next((site / "records").glob("stream-*.html"))
    for name in (*PAGES, f"records/{record.stem}"):
        open_page(browser, site, name)
        wide, seen = browser.execute_script(
            "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
        )
        assert wide <= seen <= 400, name
        assert browser.execute_script(LOW_CONTRAST) == [], name


def test_the_first_column_stays_when_a_table_is_scrolled(browser: Any, site: Path) -> None:
    look(browser, 400, "light")
    open_page(browser, site, "continual")
    box = one(browser, ".table-box")
    header = one(browser, "#final-accuracy tbody th")
    before = header.rect["x"]
    browser.execute_script("arguments[0].scrollLeft = 200", box)
    assert one(browser, "#final-accuracy tbody td").rect["x"] < before
    assert abs(header.rect["x"] - before) <= 1


def test_the_command_of_a_record_is_copied(browser: Any, site: Path) -> None:
    open_page(browser, site, f"records/{next((site / 'records').glob('evaluate-*.html')).stem}")
    button = one(browser, "button.copy")
    button.click()
    wait(browser, lambda _: button.text in ("Copied", "Selected"))


LOW_CONTRAST = """
function channels(colour) {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
function luminance([r, g, b]) {
  const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}
function background(element) {
  for (let e = element; e; e = e.parentElement) {
    const found = channels(getComputedStyle(e).backgroundColor);
    if (found[3] === 255) return found;
  }
  return [255, 255, 255];
}
const seen = new Map();
for (const element of document.querySelectorAll("main *, header *, footer")) {
  const text = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!text || !element.checkVisibility() || element.closest("svg, .unseen, select")) continue;
  const [front, back] = [channels(getComputedStyle(element).color), background(element)];
  const key = `${front} on ${back}`;
  if (!seen.has(key)) {
    const [low, high] = [luminance(front), luminance(back)].sort((a, b) => a - b);
    seen.set(key, [(high + 0.05) / (low + 0.05), element.outerHTML.slice(0, 80)]);
  }
}
return [...seen].filter(([, [ratio]]) => ratio < 4.5).map(([key, [ratio, where]]) => `${key}: ${ratio} ${where}`);
"""
"""Pairs of text and background colours whose contrast is below 4.5, WCAG's level AA."""
