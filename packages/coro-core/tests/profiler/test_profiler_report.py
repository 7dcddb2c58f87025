"""The profile's file, its exports and its report. The browser test clicks where a user would."""

import io
import json
import os
import pickle
import pstats
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import coro
from coro import print_profile, profiler
from coro.profiler import _file, _report

MAGIC = b"SHRAP_PROF1"


def workload():
    """Three recursive functions in three threads that yield."""

    def down(n):
        coro.yield_slice()
        return 0 if n == 0 else 1 + down(n - 1)

    for t in [coro.spawn(down, n, thread_name=f"down <{n}>") for n in (3, 6, 9)]:
        t.join()


@pytest.fixture(scope="module")
def profile_file(tmp_path_factory):
    name = tmp_path_factory.mktemp("profiles") / "profile.bin"
    profiler.go(coro.run, workload, profile_filename=name, profile_bench=coro.bench)
    return name


@pytest.fixture
def profile(profile_file):
    return profiler.load(profile_file)


class Page(HTMLParser):
    """Collects what the tests ask for, and complains when elements are not closed in order."""

    EMPTY = {"meta"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.ids = []
        self.links = []
        self.sources = []
        self.texts = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        self.sources += [value for key, value in attributes if key in ("src", "srcset")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def page_of(*profiles):
    text = "".join(_report.report(*profiles))
    return text, Page(text)


# ---------------------------------------------------------------------------------------------- the file


def test_the_file_is_magic_and_pickles_of_plain_data(profile_file, profile):
    with open(profile_file, "rb") as f:
        assert f.read(11) == MAGIC
        name, headings, when = pickle.load(f)
        functions = pickle.load(f)
        calls = pickle.load(f)
        rest = pickle.load(f)
        assert f.read() == b""
    assert (name, tuple(headings)) == ("bench", ("ticks",))
    assert when == profile.time
    (down,) = [f for f in functions if "down" in f]
    count, own, aggregate = functions[down]
    assert count == 21
    assert 0 < own[0] <= aggregate[0]
    assert (down, 18) in calls[down]
    assert sorted(rest) == sorted(
        ["ticks_per_second", "elapsed", "values", "names", "places", "threads", "waited", "dropped"]
    )


def test_loading_gives_what_was_saved(profile, tmp_path):
    profiler.save(profile, tmp_path / "again.bin")
    assert profiler.load(tmp_path / "again.bin") == profile


def test_a_file_of_three_parts_is_read_and_reported(profile_file, tmp_path):
    parts = []
    with open(profile_file, "rb") as f:
        f.read(11)
        for _ in range(3):
            parts.append(pickle.load(f))
    short = tmp_path / "short.bin"
    short.write_bytes(MAGIC + b"".join(pickle.dumps(part, 2) for part in parts))
    loaded = profiler.load(short)
    assert loaded.functions
    assert not loaded.threads
    page_of(loaded)
    page_of(loaded, loaded)
    with pytest.raises(profiler.ProfileError, match="no trees"):
        profiler.to_pstats(loaded, tmp_path / "x")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("made by the file",)


def plain(**changes):
    rest = {
        "ticks_per_second": 1.0, "elapsed": 1, "values": ("ticks",), "names": ["a"], "places": [("f", 1, "a")],
        "threads": [(1, "t", True, 1, [(0, 0, 1, 0, 5)])], "waited": {}, "dropped": 0,
    }  # fmt: skip
    parts = [("bench", ("ticks",), 1.0), {"a": (1, (5,), (5,))}, {"a": [("a", 1)]}, rest | changes]
    return MAGIC + b"".join(pickle.dumps(part) for part in parts)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a profile"),
        (b"SHRAP_PROF2" + b"x" * 50, "not a profile"),
        (MAGIC, "part 1 is missing"),
        (MAGIC + pickle.dumps(("bench", ("ticks",), 1.0)), "part 2 is missing"),
        (MAGIC + b"\x80\x04garbage", "damaged in part 1"),
        (MAGIC + pickle.dumps(Evil()), "names posix.mkdir"),
        (MAGIC + pickle.dumps(len), "names builtins.len"),
        (MAGIC + pickle.dumps(1) * 3, "not laid out"),
        (plain(threads=[(1, "t", True, 1, [(1, 0, 1, 0, 5)])]), "not one"),
        (plain(threads=[(1, "t", True, 1, [(0, 7, 1, 0, 5)])]), "not one"),
        (plain(threads=[(1, "t", True, 1, [(0, 0, 1, 0)])]), "integers"),
        (plain(threads=[(1, "t", True, 1, [(0, 0, 1, 0, "5")])]), "integers"),
        (plain(values=("ticks", "utime")), "integers"),
        (plain(waited=3), "not laid out"),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.bin").write_bytes(content)
    with pytest.raises(profiler.ProfileError, match=message):
        profiler.load("bad.bin")
    assert os.listdir() == ["bad.bin"]


def test_a_good_file_made_by_hand_is_read(tmp_path):
    (tmp_path / "good.bin").write_bytes(plain())
    page_of(profiler.load(tmp_path / "good.bin"))


def test_saving_does_not_follow_a_link_and_leaves_no_half(profile, tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    link = tmp_path / "profile.bin"
    link.symlink_to(victim)
    profiler.save(profile, link)
    assert victim.read_text() == "untouched"
    assert not link.is_symlink()

    def fails(*_):
        raise OSError("disk full")

    before = link.read_bytes()
    monkeypatch.setattr(_file, "dump", fails)
    with pytest.raises(OSError, match="disk full"):
        profiler.save(profile, link)
    assert link.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["profile.bin", "victim"]


def test_what_is_no_file_is_written_to_and_stays(profile, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    profiler.save(profile, pipe)
    (tmp_path / "read").write_bytes(reader.communicate(timeout=60)[0])
    assert profiler.load(tmp_path / "read") == profile
    assert pipe.is_fifo()


# ---------------------------------------------------------------------------------------------- exports


def test_pstats_reads_the_export(profile, tmp_path):
    profiler.to_pstats(profile, tmp_path / "out.prof")
    stats = pstats.Stats(str(tmp_path / "out.prof"), stream=io.StringIO())
    stats.sort_stats("cumulative").print_stats()
    stats.print_callers()
    (key,) = [key for key in stats.stats if key[2].endswith("down")]
    primitive, calls, own, whole, callers = stats.stats[key]
    assert (primitive, calls) == (3, 21)
    assert 0 < own <= whole
    assert callers[key][:2] == (18, 0)
    assert key[0] == __file__
    running = sum(node[4] for t in profile.threads for node in t.nodes) / profile.ticks_per_second
    assert stats.total_tt == pytest.approx(running)


def test_speedscope_json_is_whole(profile, tmp_path):
    profiler.to_speedscope(profile, tmp_path / "out.json")
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = data["shared"]["frames"]
    assert len(data["profiles"]) == len(profile.threads)
    for view, thread in zip(data["profiles"], profile.threads, strict=True):
        assert view["type"] == "sampled"
        assert len(view["samples"]) == len(view["weights"])
        assert all(0 <= frame < len(frames) for sample in view["samples"] for frame in sample)
        own = sum(node[4] for node in thread.nodes) / profile.ticks_per_second
        assert view["endValue"] == pytest.approx(own)
    (name,) = {f["name"] for f in frames if "down" in f["name"]}
    depths = [sum(frames[i]["name"] == name for i in s) for v in data["profiles"] for s in v["samples"]]
    assert max(depths) == 10


# ---------------------------------------------------------------------------------------------- the page


def test_the_page_is_well_formed_and_asks_no_network(profile):
    text, page = page_of(profile)
    assert len(set(page.ids)) == len(page.ids)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert page.sources == []
    assert re.findall(r"https?://[^\s\"']+", text) == ["http://www.w3.org/2000/svg"]  # the name of a name space
    assert "default-src 'none'" in text
    for part in ("own", "aggregate", "flame", "threads-table", "trees"):
        assert part in page.ids
    assert "down <6> #" in "".join(page.texts)


def test_what_the_profile_says_is_escaped(profile):
    bad = "</script><script>alert(1)</script>&<b>'\""
    profile.functions[bad] = (1, (1,), (1,))
    profile.calls[bad] = [(bad, 1)]
    profile.names[2] = bad
    profile.threads[1].name = bad
    profile.bench = bad
    profile.headings = (bad,)
    text, page = page_of(profile)
    assert "alert(1)</script>" not in text
    assert text.count("</script>") == 2
    assert bad in "".join(page.texts)


def test_nothing_is_divided_by_zero():
    empty = profiler.Profile("bench", ("ticks",), 0.0, {}, {})
    page_of(empty)
    zero = profiler.Profile(
        "bench", ("ticks",), 0.0, {"a": (0, (0,), (0,)), "b": (0, (5,), (0,))}, {"a": [("b", 3), ("gone", 1)]}
    )
    text, _ = page_of(zero)
    assert "3/0 (0%)" in text
    page_of(zero, empty)


def test_columns_of_zeros_are_left_out():
    functions = {"a": (2, (10, 0.5, 0), (10, 0.5, 0)), "<wait>": (0, (90, 0.0, 0), (90, 0.0, 0))}
    profile = profiler.Profile("rusage_bench", ("ticks", "utime", "nswap"), 0.0, functions, {})
    text, _ = page_of(profile)
    assert "<th>ticks</th><th>ticks/call</th><th>utime</th><th>utime/call</th>" in text
    assert "nswap" not in text
    assert "0.500000" in text
    assert "100.00%" in text  # <wait> is not part of the whole
    assert "90.00%" not in text


def test_two_profiles_are_compared_by_name():
    def made(line, calls, ticks):
        functions = {f"dir/f.py:g:{line}": (calls, (ticks,), (ticks,)), "m:only": (1, (1,), (1,))}
        if line == 1:
            functions["m:gone"] = (4, (40,), (40,))
        return profiler.Profile("bench", ("ticks",), 0.0, functions, {})

    text, page = page_of(made(1, 10, 100), made(3, 15, 350))
    (row,) = re.findall(r'<tr id="own-\d+">((?:(?!</tr>).)*>dir/f.py:g</a>)', text)
    assert re.findall(r'data-v="([^"]*)"', row) == ["5", "250", "50.0", "dir/f.py:g"]
    (row,) = re.findall(r'<tr id="own-\d+">((?:(?!</tr>).)*>m:gone</a>)', text)
    assert re.findall(r'data-v="([^"]*)"', row)[:2] == ["-4", "-40"]
    assert "Comparison" in "".join(page.texts)
    other = profiler.Profile("rusage_bench", ("ticks", "utime"), 0.0, {}, {})
    with pytest.raises(profiler.ProfileError, match="same bench"):
        page_of(made(1, 1, 1), other)


def test_a_deep_and_a_wide_tree_are_drawn():
    names = [f"f{i}" for i in range(3000)]
    deep = [(i, i, 1, 0, 10) for i in range(3000)]
    wide = [(0, 0, 1, 0, 0)] + [(1, i, 1, 0, i) for i in range(1, 3000)]
    profile = profiler.Profile("bench", ("ticks",), 0.0, dict.fromkeys(names, (1, (1,), (1,))), {}, names=names)
    profile.places = [("~", 0, n) for n in names]
    profile.threads = [
        profiler.ThreadProfile(1, "deep", True, 1, deep),
        profiler.ThreadProfile(2, "wide", True, 1, wide),
    ]
    text, _ = page_of(profile)
    trees = json.loads(re.search(r'id="trees">(.*?)</script>', text, re.S)[1])
    assert [t["name"] for t in trees["threads"]] == ["all threads", "wide #2", "deep #1"]
    assert len(trees["threads"][1]["nodes"]) < 3000


# ---------------------------------------------------------------------------------------------- the command


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "coro.print_profile", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def test_the_command_prints_exports_and_refuses(profile_file, tmp_path):
    done = command(profile_file)
    assert done.returncode == 0
    assert done.stderr == ""
    Page(done.stdout)
    assert command(profile_file, profile_file).returncode == 0
    assert command(profile_file, "--pstats", tmp_path / "p").returncode == 0
    pstats.Stats(str(tmp_path / "p"))
    assert command(profile_file, "--speedscope", tmp_path / "s").returncode == 0
    usage = command()
    assert usage.returncode == 2
    assert usage.stderr.startswith("usage:")
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"something else")
    for arguments in ((wrong,), (tmp_path / "missing",), (wrong, "--pstats", tmp_path / "q")):
        done = command(*arguments)
        assert done.returncode == 1
        assert done.stderr.startswith("print_profile: ")
        assert "Traceback" not in done.stderr


def test_main_prints_to_stdout(profile_file, capsys):
    print_profile.main(profile_file)
    Page(capsys.readouterr().out)
    with pytest.raises(SystemExit) as raised:
        print_profile.main(__file__)
    assert raised.value.code == 1
    assert "not a profile" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------- in a browser

OPTIONS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --window-size=1200,900""".split()


@pytest.fixture
def browser():
    try:
        from selenium import webdriver
    except ImportError:
        webdriver = None
    programs = [shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")]
    if webdriver is None or None in programs:
        text = "needs a browser: install chromium and chromium-driver, and the Python package selenium"
        if os.environ.get("CORO_REQUIRE_SERVERS") == "1" and sys.version_info[:2] == (3, 12):
            pytest.fail(text)
        pytest.skip(text + " (one Python is enough: 3.12 where servers are required)")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_a_click_on_a_heading_sorts_the_table(browser, profile, tmp_path):
    text, _ = page_of(profile)
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    browser.get((tmp_path / "report.html").as_uri())

    def column(number):
        cells = browser.find_elements("css selector", f"#own tbody td:nth-child({number})")
        return [cell.get_attribute("data-v") for cell in cells]

    heads = browser.find_elements("css selector", "#own thead th")
    assert [h.text.strip(" \u25be\u25b4") for h in heads] == ["calls", "ticks", "ticks/call", "waited", "function"]
    before = column(1)
    heads[0].click()
    down = list(map(int, column(1)))
    assert down == sorted(map(int, before), reverse=True)
    assert column(1) != before
    assert heads[0].get_attribute("aria-sort") == "descending"
    heads[0].click()
    assert list(map(int, column(1))) == sorted(down)
    assert heads[0].get_attribute("aria-sort") == "ascending"
    heads[4].click()
    assert heads[0].get_attribute("aria-sort") is None
    assert column(5) == sorted(column(5), reverse=True)

    boxes = browser.find_elements("css selector", "#flame rect")
    assert len(boxes) > 5
    browser.find_element("css selector", "#whose option:nth-child(3)").click()
    assert len(browser.find_elements("css selector", "#flame rect")) != len(boxes)
    box = browser.find_elements("css selector", "#flame rect")[-1]
    name = box.find_element("css selector", "title").get_attribute("textContent")
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click'))", box)
    assert browser.find_element("id", "told").text == name

    assert browser.get_log("browser") == []
    asked = [
        message["params"]["request"]["url"]
        for entry in browser.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
