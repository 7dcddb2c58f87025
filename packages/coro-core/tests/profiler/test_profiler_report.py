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
from coro.profiler import _file, _report, _words

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

    EMPTY = {"meta", "input"}

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
        (MAGIC + pickle.dumps(Evil()), "names a class"),
        (MAGIC + pickle.dumps(len), "names a class"),
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
    assert "down <*> (3 threads)" in page.texts


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


def heads(text, table="own"):
    (row,) = re.findall(rf'id="{table}"><thead><tr>(.*?)</tr>', text)
    return re.findall(r"<th[^>]*>([^<]*)</th>", row)


def shown(text, function, table="own"):
    """The texts of a function's row."""
    (row,) = re.findall(rf'<tr id="{table}-\d+"[^>]*><td data-v="{re.escape(function)}">((?:(?!</tr>).)*)', text)
    return re.sub(r"<[^>]*>", " ", row).split()


def test_times_are_milliseconds_and_microseconds_for_a_call():
    functions = {"shop/a.py:f:7": (4, (10_000, 0.5), (30_000, 0.5))}
    made = profiler.Profile("bench", ("ticks", "utime"), 0.0, functions, {}, ticks_per_second=1e6)
    text, _ = page_of(made)
    assert heads(text) == ["function", "ms", "µs/call", "calls", "user CPU ms"]
    own = ["f", "shop/a.py:7", "10.000", "100.0%", "2,500.00", "4", "500.000", "100.0%"]
    assert shown(text, "shop/a.py:f:7") == own
    assert "30.000" in shown(text, "shop/a.py:f:7", "aggregate")
    made.ticks_per_second = 0.0  # an old file
    text, _ = page_of(made)
    assert heads(text)[:3] == ["function", "ticks", "ticks/call"]


def test_columns_of_zeros_are_left_out():
    functions = {"a": (2, (10, 0.5, 0), (10, 0.5, 0)), "<wait>": (0, (90, 0.0, 0), (90, 0.0, 0))}
    profile = profiler.Profile("rusage_bench", ("ticks", "utime", "nswap"), 0.0, functions, {})
    text, _ = page_of(profile)
    assert heads(text) == ["function", "ticks", "ticks/call", "calls", "user CPU ms"]
    assert "500.000" in text
    assert "100.0%" in text  # <wait> is not part of the whole
    assert "90.0%" not in text
    # What is too little to be seen is zero, too.
    functions["a"] = (2, (10, 1e-9, 0), (10, 1e-9, 0))
    assert heads(page_of(profile)[0]) == ["function", "ticks", "ticks/call", "calls"]


def test_own_code_is_told_from_that_of_libraries():
    places = {
        "shop/orders.py:price:3": "/srv/shop/orders.py",
        "lib/coro/x.py:f:1": "/usr/lib/python3.12/site-packages/coro/x.py",
        "json/decoder.py:decode:9": "/usr/lib/python3.12/json/decoder.py",
        "yaml/x.py:load:9": "/srv/shop/.venv/lib/python3.12/site-packages/yaml/x.py",
        "importlib.py:f:1": "<frozen importlib._bootstrap>",
        "coro.groups:f:1": coro.groups.__file__,
        "coro._net.sock:sock.recv": "~",
        "<main>": "~",
        "builtins:len": "~",
    }
    functions = dict.fromkeys(places, (1, (10,), (10,)))
    made = profiler.Profile("bench", ("ticks",), 0.0, functions, {}, ticks_per_second=1e3)
    made.names = list(places)
    made.places = [(file, 1, "f") for file in places.values()]
    found = _words.owners(made)
    assert [found[name] for name in places] == [
        "own", "coro", "library", "library", "library", "coro", "coro", "coro", "library",
    ]  # fmt: skip
    text, page = page_of(made)
    assert len(re.findall(r'<tr id="own-\d+" data-owner="own">', text)) == 1
    words = "".join(page.texts)
    assert "this program 10.000 ms (11.1%)" in words
    assert "coro 40.000 ms (44.4%)" in words
    assert "only-own" in page.ids


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("shop/a.py:f:7", ("f", "shop/a.py:7")),
        ("shop/a.py:C.f:7#2", ("C.f", "shop/a.py:7")),
        ("shop/a.py:f", ("f", "shop/a.py")),
        ("builtins:list.append", ("list.append", "builtins")),
        ("<main>", ("<main>", "")),
        (":", (":", "")),
        ("", ("", "")),
    ],
)
def test_names_of_functions_come_apart(name, parts):
    assert _words.parts_of(name) == parts


def test_threads_of_one_kind_are_shown_together():
    def thread(number, name, ticks):
        return profiler.ThreadProfile(number, name, number != 5, 2, [(0, 0, 1, 7, ticks)])

    made = profiler.Profile("bench", ("ticks",), 0.0, {"f": (1, (1,), (1,))}, {}, ticks_per_second=1e3, names=["f"])
    made.places = [("/a.py", 1, "f")]
    made.threads = [
        thread(0, "<main>", 1), thread(1, "main", 5), thread(2, "session 1", 10), thread(3, "session 22", 20),
        thread(4, "worker", 1), thread(5, "worker", 2), thread(6, "page 7", 3),
    ]  # fmt: skip
    text, _ = page_of(made)
    table = re.search(r'id="threads-table".*?</table>', text, re.S)[0]
    rows = [re.sub(r"(<[^>]*>)+", "|", row).strip("|").split("|") for row in re.findall(r"<tr>.*?</tr>", table)]
    assert rows[0] == ["threads called", "how many", "ms", "ms/thread", "slices", "calls", "waited ms", "state"]
    assert rows[1] == ["session * (2 threads)", "2", "30.000", "71.4%", "15.000", "4", "2", "14.000", "ended"]
    assert [row[0] for row in rows[2:]] == ["main #1", "worker (2 threads)", "page 7 #6", "&lt;main&gt;"]
    assert rows[3][-1] == "1 ended"


def test_what_is_the_same_in_all_names_of_a_group_stays():
    def group(*names):
        ((title, members),) = _words.groups([profiler.ThreadProfile(1, name, True, 1, []) for name in names])
        assert len(members) == len(names)
        return title

    assert group("from ('127.0.0.1', 77)", "from ('127.0.0.1', 8080)") == "from ('127.0.0.1', *)"
    assert group("3", "4") == "*"
    assert group("7", "7") == "7"


def test_two_profiles_are_compared_by_name():
    def made(line, calls, ticks):
        functions = {f"dir/f.py:g:{line}": (calls, (ticks,), (ticks,)), "m:only": (1, (1,), (1,))}
        if line == 1:
            functions["m:gone"] = (4, (40,), (40,))
        return profiler.Profile("bench", ("ticks",), 0.0, functions, {})

    text, page = page_of(made(1, 10, 100), made(3, 15, 350))
    assert shown(text, "dir/f.py:g")[:4] == ["g", "dir/f.py", "250", "119.0%"]
    assert shown(text, "dir/f.py:g")[-1] == "5"
    assert shown(text, "m:gone")[2] == "-40"
    assert shown(text, "m:gone")[-1] == "-4"
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
    assert [h.text.strip(" \u25be\u25b4") for h in heads] == ["function", "ms", "µs/call", "calls", "waited ms"]
    assert heads[1].get_attribute("aria-sort") == "descending"
    before = column(4)
    heads[3].click()
    down = list(map(int, column(4)))
    assert down == sorted(map(int, before), reverse=True)
    assert column(4) != before
    assert heads[3].get_attribute("aria-sort") == "descending"
    heads[3].click()
    assert list(map(int, column(4))) == sorted(down)
    assert heads[3].get_attribute("aria-sort") == "ascending"
    heads[0].click()
    assert heads[3].get_attribute("aria-sort") is None
    assert column(1) == sorted(column(1), reverse=True)

    browser.find_element("id", "only-own").click()
    visible = [row for row in browser.find_elements("css selector", "#own tbody tr") if row.is_displayed()]
    assert {row.get_attribute("data-owner") for row in visible} == {"own"}

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
