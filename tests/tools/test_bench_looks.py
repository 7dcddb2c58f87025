"""What a run of the bench looks like: its pictures, its tables, the comparison of two runs.

The figures are invented; their form is that of all suites there are, because the records are made of them.
"""

import copy
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tools.bench import _captions, _compare, _plots, _results, _suites, _tables

ABOUT = {
    "when": "2031-02-03T04:05:06+00:00",
    "python": "3.12.1",
    "versions": {"coro-core": "1.2", "gevent": "26.9", "greenlet": "3.5", "trio": None, "uvloop": "0.23"},
    "machine": "x86_64",
    "system": "Linux 6.18.44-strange",
    "cores": 2,
    "rounds": 3,
}
SVG = "{http://www.w3.org/2000/svg}"


def record(case, figures, failures=()):
    """The record of a case: by peer, the figures of its rounds in the unit of the metric."""
    metric = _suites.METRICS[case.metric]
    made = _results.Record(case, failures=dict(failures))
    for peer, values in figures.items():
        for value in values:
            made.add(peer, {"count": 1000, metric.key: value / metric.scale * (1 if metric.whole else 1000)})
    return made


def run_of(*records):
    return _results.as_json(list(records), ABOUT)


@pytest.fixture(scope="module")
def whole_run():
    """A run of everything; each case of a suite is larger than the one before, from hundreds to hundred millions."""
    records = []
    for i, case in enumerate(_suites.CASES):
        size = 123.4 * 10 ** (i % 7)
        figures = {peer: [size * (k + 1), size * (k + 1.1), size * (k + 1.3)] for k, peer in enumerate(case.peers)}
        records.append(record(case, figures))
    return run_of(*records)


SWITCH = _suites.Case("switch", "10000 threads in a ring", "switch.py", {}, (_suites.Rival("greenlet", 0.6),))
OWN = _suites.Case("memory", "parked", "memory.py", {}, (), metric="bytes", own_bar=1741.0)


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def rows(text):
    """The cells of all rows of the tables in a text."""
    found = re.findall(r"^   ([* ]) -(?: (.*))?$", text, re.MULTILINE)
    out = []
    for start, cell in found:
        if start == "*":
            out.append([])
        out[-1].append(cell.replace("\N{NO-BREAK SPACE}", " "))
    return [row for row in out if row != _tables.HEAD]


# -- Captions


def test_every_suite_has_a_caption():
    assert [suite for suite in _suites.SUITES if suite not in _captions.CAPTIONS] == []


def test_a_suite_that_nobody_described_has_its_name():
    assert _captions.caption("others") == _captions.Caption("Others", "")


@pytest.mark.parametrize(
    "value, written",
    [
        (0.0, "0.00"),
        (0.4567, "0.457"),
        (1.1, "1.10"),
        (45.04, "45.0"),
        (99.96, "100"),
        (1484.2, "1 484"),
        (12345678.0, "12 345 678"),
        (-3.24, "\N{MINUS SIGN}3.24"),
    ],
)
def test_a_figure_has_three_digits_that_count(value, written):
    assert _captions.number(value).replace("\N{NO-BREAK SPACE}", " ") == written


@pytest.mark.parametrize("value, written", [(0.0041, "0.0041"), (0.04, "0.040"), (0.0996, "0.10"), (1.0, "1.00")])
def test_a_small_ratio_keeps_two_digits(value, written):
    assert _captions.ratio(value) == written


@pytest.mark.parametrize(
    "unit, values, name",
    [
        ("ns", [45.0, 9_999.0], "ns"),
        ("ns", [45.0, 10_000.0], "µs"),
        ("us", [646.0], "µs"),
        ("us", [20_000.0], "ms"),
        ("bytes", [9_000.0], "bytes"),
        ("bytes", [90_000.0], "KiB"),
        ("times", [2.0], "times"),
        ("ns", [], "ns"),
    ],
)
def test_all_figures_of_a_case_have_the_unit_of_the_greatest(unit, values, name):
    assert _captions.unit_for(unit, values).name == name


def test_names_of_cases():
    def name(text):
        return _captions.case_name({"case": text}).replace("\N{NO-BREAK SPACE}", " ")

    assert name("beside 500000 others") == "Beside 500 000 others"
    assert name("with_timeout of a function") == "with_timeout of a function"


# -- Pictures


@pytest.mark.parametrize("greatest", [0.0007, 0.99, 1.0, 1.01, 3.0, 6.0, 7.3, 96.3, 520.0, 1000.0, 123456.0])
def test_ticks_are_round_and_few(greatest):
    marks = _plots.ticks(greatest)
    step = marks[1]
    assert marks[0] == 0 and marks[-2] < greatest <= marks[-1] * (1 + 1e-9)
    assert 3 <= len(marks) <= _plots.TICKS + 1
    assert f"{step:e}"[:8] in {"1.000000", "2.000000", "5.000000"}
    assert marks == pytest.approx([i * step for i in range(len(marks))])


def test_there_are_no_ticks_for_nothing():
    assert _plots.ticks(0.0) == _plots.ticks(-3.0) == []


def test_a_picture_for_each_suite(whole_run, tmp_path):
    written = _plots.write(whole_run, tmp_path / "pictures")
    assert [path.stem for path in written] == list(_suites.SUITES)
    for path in written:
        root = ElementTree.parse(path).getroot()
        about = _captions.CAPTIONS[path.stem]
        assert root.find(f"{SVG}title").text == about.title
        said = " ".join(element.text for element in root.iter(f"{SVG}text"))
        assert about.title in said and "Shorter is better." in said and "Medians of 3 interleaved rounds" in said


def test_nothing_is_outside_of_the_picture(whole_run, tmp_path):
    for path in _plots.write(whole_run, tmp_path):
        root = ElementTree.parse(path).getroot()
        left, top, width, height = map(float, root.get("viewBox").split())
        for element in root.iter(f"{SVG}text"):
            bold = element.get("font-weight") == "bold"
            wide = _plots.text_width(element.text, float(element.get("font-size")), bold)
            before = {"end": wide, "middle": wide / 2}.get(element.get("text-anchor"), 0)
            x, y = float(element.get("x")) - before, float(element.get("y"))
            assert left <= x and x + wide <= left + width, (path.name, element.text)
            assert top <= y <= top + height
        for element in root.iter(f"{SVG}rect"):
            assert float(element.get("x")) + float(element.get("width")) <= left + width


def test_a_picture_has_no_background_and_colours_for_light_and_dark(whole_run, tmp_path):
    for path in _plots.write(whole_run, tmp_path):
        root = ElementTree.parse(path).getroot()
        style = root.find(f"{SVG}style").text
        light, dark = style.split("@media(prefers-color-scheme:dark)")
        assert "text{fill:" in light and "text{fill:" in dark
        for element in root.iter(f"{SVG}rect"):
            assert element.get("fill") is None
            assert f".{element.get('class')}{{fill:" in light and f".{element.get('class')}{{fill:" in dark


def test_bars_are_as_long_as_their_figures():
    svg = _plots.picture("switch", run_of(record(SWITCH, {"coro": [50.0], "greenlet": [200.0]}))["cases"], ABOUT)
    lengths = [float(bar.get("width")) for bar in ElementTree.fromstring(svg).iter(f"{SVG}rect")]
    assert lengths[1] == pytest.approx(4 * lengths[0], abs=0.5)
    assert [text for text in texts(svg) if text in ("0", "50", "100", "150", "200")] == ["0", "50", "100", "150", "200"]
    assert "nanoseconds" in texts(svg)


def test_cases_share_an_axis_unless_they_differ_much():
    def axes(*sizes):
        run = run_of(*(record(SWITCH, {"coro": [size], "greenlet": [2 * size]}) for size in sizes))
        return texts(_plots.picture("switch", run["cases"], ABOUT)).count("nanoseconds")

    assert axes(10.0, 20.0, 30.0) == 1
    assert axes(10.0, 20.0, 300.0) == 2


def test_who_takes_part_has_one_colour_and_coro_under_other_conditions_another():
    class_of = {}
    for case in _suites.CASES:
        written = run_of(record(case, {}))["cases"][0]
        for peer in case.peers:
            class_of.setdefault(peer, set()).add(_plots._colour(written, peer))
    assert class_of["coro"] == {"coro"} and class_of["gevent"] == {"gevent"}
    assert class_of["unprofiled"] == class_of["coro, 100"] == {"self"}
    assert class_of["time.monotonic_ns"] == {"other"}
    assert all(len(classes) == 1 for classes in class_of.values())


def test_who_could_not_be_measured_is_named():
    run = run_of(record(SWITCH, {"coro": [50.0]}, {"greenlet": "pip failed"}))
    said = texts(_plots.picture("switch", run["cases"], ABOUT))
    assert said[said.index("greenlet") + 1] == "not measured"


def test_a_run_in_which_nothing_could_be_measured():
    run = run_of(record(SWITCH, {}, {"coro": "failed", "greenlet": "failed"}), record(OWN, {}))
    assert texts(_plots.picture("switch", run["cases"][:1], run)).count("not measured") == 2
    ElementTree.fromstring(_plots.picture("memory", run["cases"][1:], run))


def test_a_figure_below_zero_has_no_axis():
    svg = _plots.picture("memory", run_of(record(OWN, {"coro": [-3.24]}))["cases"], ABOUT)
    assert "\N{MINUS SIGN}3.24\N{NO-BREAK SPACE}bytes" in texts(svg) and "bytes" not in texts(svg)


# -- Tables


def test_a_row_has_both_figures_the_ratio_and_the_verdict():
    run = run_of(record(SWITCH, {"coro": [44.0, 45.0, 46.0], "greenlet": [130.0, 125.0, 140.0]}))
    assert rows(_tables.text(run)) == [
        ["10 000 threads in a ring", "45.0 ns", "greenlet", "130 ns", "**0.34** (0.33 – 0.36)", "0.6: held"]
    ]


def test_what_does_not_hold_is_said():
    run = run_of(record(SWITCH, {"coro": [90.0], "greenlet": [100.0]}))
    assert rows(_tables.text(run))[0][-2:] == ["**0.90**", "0.6: **not held**"]


ECHO = _suites.Case(
    "echo", "1 connection", "echo.py", {}, (_suites.Rival("c", 1.25), _suites.Rival("gevent", 0.55)), floor="c"
)


@pytest.mark.parametrize(
    ("coro", "c", "verdict"),
    [
        (50.0, 40.0, "0.55: held"),
        (60.0, 49.0, "0.55: **not held**"),
        (55.5, 53.0, "0.55, but a tenth above C: 0.583: held"),
        (75.0, 70.0, "0.55, but a tenth above C: 0.77: held"),
        (80.0, 70.0, "0.55, but a tenth above C: 0.77: **not held**"),
    ],
)
def test_no_bar_asks_for_less_than_a_tenth_above_the_floor(coro, c, verdict):
    measured = record(ECHO, {"coro": [coro], "c": [c], "gevent": [100.0]})
    against_c, against_gevent = (row[-1] for row in rows(_tables.text(run_of(measured))))
    assert against_gevent == verdict and against_c.startswith("1.25: ")
    printed = measured.lines()[1].text()
    assert ("DOES NOT HOLD" in printed) == ("not held" in verdict)
    assert (", but c " in printed) == (", but " in verdict)


def test_our_own_figure_against_a_bar():
    run = run_of(record(OWN, {"coro": [1484.0, 1480.0, 1490.0]}))
    assert rows(_tables.text(run)) == [
        ["Parked", "**1 484 bytes** (1 480 bytes – 1 490 bytes)", "", "", "", "1 741 bytes: held"]
    ]


def test_a_case_without_bar_and_rival_is_in_the_table():
    case = _suites.Case("children", "99th percentile", "children.py", {}, (), metric="delay")
    run = run_of(record(case, {"coro": [1355.0]}))
    assert rows(_tables.text(run)) == [["99th percentile", "**1 355 µs**", "", "", "", ""]]


def test_the_second_row_of_a_case_does_not_repeat_the_first():
    rivals = (_suites.Rival("gevent", 0.2), _suites.Rival("trio"))
    case = _suites.Case("fifo", "push", "handover.py", {}, rivals)
    run = run_of(record(case, {"coro": [164.0], "gevent": [4000.0]}, {"trio": "no wheel"}))
    assert rows(_tables.text(run)) == [
        ["Push", "164 ns", "gevent", "4 000 ns", "**0.041**", "0.2: held"],
        ["", "", "trio", "not measured", "not measured", ""],
    ]


def test_coro_against_itself_says_under_which_conditions():
    case = _suites.Case("growth", "switch", "switch.py", {}, (_suites.Rival("coro, 100", 4, "coro"),))
    run = run_of(record(case, {"coro": [300.0], "coro, 100": [100.0]}))
    assert rows(_tables.text(run))[0][1:4] == ["300 ns, among 100 000", "among 100", "100 ns"]


def test_tables_of_all_suites_are_restructuredtext(whole_run):
    nodes = pytest.importorskip("docutils.nodes")
    core = pytest.importorskip("docutils.core")
    strict = {"halt_level": 2, "report_level": 2, "file_insertion_enabled": False}
    tree = core.publish_doctree(_tables.text(whole_run, "../images/bench"), settings_overrides=strict)
    assert len(list(tree.findall(nodes.table))) == len(list(tree.findall(nodes.image))) == len(_suites.SUITES)


def test_the_first_paragraph_says_where_it_was(whole_run):
    first = _tables.text(whole_run).splitlines()[0]
    assert first == (
        "CPython 3.12.1, Linux 6.18 on x86_64, 2 cores; coro-core 1.2, gevent 26.9, greenlet 3.5, uvloop 0.23. "
        "Medians of 3 interleaved rounds, 2031-02-03."
    )


# -- Two runs


def test_a_comparison_names_what_changed(whole_run):
    slower = copy.deepcopy(whole_run)
    line = slower["cases"][0]["lines"][0]
    line["ratio"] = {end: value * 3 for end, value in line["ratio"].items()}
    found = _compare.changes(whole_run, slower)
    assert [change.name for change in found if change.worse(0.1)] == [found[0].name]
    head, first, *others = _compare.report(found, 0.1).splitlines()
    assert head.split()[-3:] == ["old", "new", "change"]
    assert first.endswith("+200.0 %  WORSE") and not any("WORSE" in line for line in others)
