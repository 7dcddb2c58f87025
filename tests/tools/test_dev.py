"""tools.dev: what runs where, in which order, and that nothing is left out without a word."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.dev import jobs, keywords, plan, soak, suite  # noqa: E402
from tools.dev.environments import StepFailed  # noqa: E402
from tools.dev.jobs import Job  # noqa: E402

CORE_TESTS = "packages/coro-core/tests"


# -- what runs where


def test_a_single_python_runs_all_and_several_share():
    for minor in (11, 13, 15):
        alone = plan.Plan([minor], everything=False)
        assert alone.slow_on == alone.kqueue_on == alone.tools_on == {minor}
        assert alone.marks(minor) == []
    several = plan.Plan([11, 12, 13, 14, 15], everything=False)
    assert several.slow_on == {12} and several.newest_on == {15} and several.kqueue_on == {11, 15}
    assert several.marks(12) == [] and several.marks(13) == ["-m", "not slow or each_python"]
    assert several.marks(15) == ["-m", "not slow or each_python or newest"]
    two = plan.Plan([13, 14], everything=False)
    assert two.slow_on == two.newest_on == {14} and two.marks(14) == []
    assert plan.Plan([11, 12, 13], everything=True).slow_on == {11, 12, 13}


def marks_of(node: ast.Module | ast.FunctionDef) -> list[ast.expr]:
    """The marks of a file of tests, or of one test."""
    if isinstance(node, ast.FunctionDef):
        return [*node.decorator_list]
    found: list[ast.expr] = []
    for line in node.body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "pytestmark":
            found += line.value.elts if isinstance(line.value, ast.List) else [line.value]
    return found


def skipped_on(mark: ast.expr, version: tuple[int, int]) -> bool:
    """Does the mark skip tests on that Python?"""
    if not isinstance(mark, ast.Call) or not ast.unparse(mark.func).endswith("mark.skipif"):
        return False
    condition = ast.unparse(mark.args[0])
    if not condition.startswith("sys.version_info"):
        return False
    return bool(eval(condition, {"sys": types.SimpleNamespace(version_info=version)}))


def test_every_slow_test_runs_on_a_python_that_it_is_not_skipped_on():
    # On which Pythons of a whole run a slow test with each of these marks runs.
    runs_on = {"": plan.SLOW_ON, "newest": plan.SLOW_ON + plan.NEWEST_ON, "each_python": (11, 12, 13, 14, 15)}
    wrong, seen = [], set()
    for path in sorted((ROOT / "packages").glob("*/tests/**/test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        own = marks_of(tree)
        for test in tree.body:
            if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
                continue
            marks = [*own, *marks_of(test)]
            names = {ast.unparse(mark).partition("(")[0].rpartition(".")[2] for mark in marks}
            if "slow" not in names:
                assert not names & {"newest", "each_python"}, f"{path}: {test.name} is not slow: it runs everywhere"
                continue
            kind = "each_python" if "each_python" in names else "newest" if "newest" in names else ""
            seen.add(kind)
            if all(any(skipped_on(mark, (3, minor)) for mark in marks) for minor in runs_on[kind]):
                wrong.append(f"{path.relative_to(ROOT)}: {test.name}")
    assert wrong == []
    assert seen == {"", "newest", "each_python"}


def test_options_go_to_every_suite():
    everywhere = suite.chosen(["-m", "not slow", "-x"])
    assert [s.name for s, _ in everywhere] == [s.name for s in suite.suites()]
    assert all(arguments == ["-m", "not slow", "-x"] for _, arguments in everywhere)


def test_words_choose_the_suites_that_have_them(capsys):
    ((core, arguments),) = suite.chosen(["-k", "against_a_model and test_lru", "-x"])
    assert core.name == "coro-core" and arguments == ["-k", "against_a_model and test_lru", "-x"]
    said = capsys.readouterr().out
    assert "testing coro-core alone" in said and "coro-dns" in said and "a path selects" in said
    # What is left out may be selected by its path.
    ((dns, _),) = suite.chosen(["-k", "test_lru", "packages/coro-dns"])
    assert dns.name == "coro-dns"
    # `not` may select anything.
    assert len(suite.chosen(["-k", "not test_lru"])) == len(suite.suites())
    with pytest.raises(StepFailed, match="no test has one"):
        suite.chosen(["-k", "no_such" + "_word"])


def test_words_are_found_in_names_and_parameters_alone():
    text = '''"""hidden"""
import hidden.module
KINDS = {"of a table": 1}

# hidden
@pytest.mark.marked
@pytest.mark.parametrize("parameter", ["first", Second])
def test_one(hidden):
    """hidden"""
    assert "hidden"

class TestClass:
    def test_method(self): hidden()
'''
    names = set(keywords.names_in(ast.parse(text)))
    assert names >= {"marked", "first", "Second", "of a table", "test_one", "TestClass", "test_method"}
    assert "hidden" not in names
    assert keywords.words_of(["-x", "-k", "(One or two) and three[x-1]"]) == ["one", "two", "three[x-1]"]
    assert keywords.words_of(["-kone"]) == keywords.words_of(["-k=one"]) == ["one"]
    assert keywords.words_of(["-k", "one and not two"]) == keywords.words_of(["-x"]) == []


def test_a_path_that_does_not_exist_is_an_error_at_once():
    for path in ("packages/coro-core/tests/test_no_such.py", "nowhere", "tests/no::test", "packages/x"):
        with pytest.raises(StepFailed, match=f"got '{path}': there is no such file"):
            suite.chosen([path, "-x"])
    # The value of an option that is not known here.
    assert suite.split(["--log-level", "DEBUG", "packages"]) == (["--log-level", "DEBUG"], ["packages"])


def test_what_will_be_built_is_said_first(capsys, monkeypatch):
    monkeypatch.setattr(suite, "unbuilt", lambda python, wanted: [suite.CORE, *wanted[:1]])
    python = types.SimpleNamespace(short="3.13", minor=13)
    made = suite.Run([python], ["-k", "no_such_word or test_lru"], 60, False, False)
    said = capsys.readouterr().out
    assert "building coro-core for Python 3.13: up to " in said and " min, less what" in said
    assert [job.name for job in made.jobs] == ["3.13 build of coro-core", "3.13 coro-core"]


def test_paths_choose_suites_and_it_is_said(capsys):
    ((core, arguments),) = suite.chosen(["-x", f"{CORE_TESTS}/test_lru.py::test_against_a_model"])
    assert core.name == "coro-core" and arguments == ["-x", f"{CORE_TESTS}/test_lru.py::test_against_a_model"]
    assert "testing coro-core alone" in capsys.readouterr().out
    ((clocks, arguments),) = suite.chosen(["packages/coro-clocks"])
    assert clocks.name == "coro-clocks" and arguments == [str(ROOT / "packages/coro-clocks/tests")]
    assert len(suite.chosen(["packages"])) == len(suite.suites()) - 1
    with pytest.raises(StepFailed, match="expected paths of tests"):
        suite.chosen(["docs"])


def test_the_value_of_an_option_is_no_path():
    assert suite.split(["-k", "docs", "tools"]) == (["-k", "docs"], ["tools"])
    assert suite.split(["-k", "no/such"]) == (["-k", "no/such"], [])


def test_parts_have_every_file_once_and_about_the_same_length(monkeypatch):
    monkeypatch.setattr(suite, "SECONDS", ROOT / "nowhere")
    monkeypatch.setattr(suite, "guess", lambda file, slow: 30.0 if file.name == "test_torture.py" else 1.0)
    files = suite.suites()[0].files()
    found = suite.parts(files, side_by_side=True)
    assert sorted(file for _, some in found for file in some) == files
    assert 2 < len(found) and max(seconds for seconds, _ in found) - min(seconds for seconds, _ in found) < 30
    ((_, whole),) = suite.parts(files, side_by_side=False)
    assert whole == files


# -- the queue


def run(*wanted, workers=2):
    jobs.run(wanted, workers)
    return [job.problem for job in wanted]


def test_the_longest_chain_comes_first():
    order = []
    note = lambda job: order.append(job.name)  # noqa: E731
    short = Job("short", note, 1)
    head = Job("head", note, 1)
    tail = Job("tail", note, 50, (head,))
    middle = Job("middle", note, 20)
    assert run(short, head, tail, middle, workers=1) == [""] * 4
    assert order == ["head", "tail", "middle", "short"]


def test_who_comes_after_a_failure_is_not_run_and_others_are(capsys):
    order = []

    def fails(job):
        raise StepFailed("no compiler\nand more")

    first = Job("first", fails)
    second = Job("second", lambda job: order.append("second"), after=(first,))
    third = Job("third", lambda job: order.append("third"), after=(second,))
    other = Job("other", lambda job: order.append("other"))
    assert run(first, second, third, other) == [
        *("no compiler", "not run, because first failed", "not run, because second failed", ""),
    ]
    assert order == ["other"]
    assert "first | FAILED: no compiler" in capsys.readouterr().out


def test_a_mistake_of_the_tools_is_a_failure():
    assert run(Job("odd", lambda job: 1 // 0))[0].startswith("ZeroDivisionError")


def test_programs_are_streamed_counted_and_ended(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jobs, "SILENCE", 0.05)
    seen = []

    def work(job):
        code = "import time; print('hello', flush=True); time.sleep(600)"
        seen.append(jobs.stream(job, [sys.executable, "-c", code], tmp_path / "log", 1.0, where=lambda: "in a test"))

    job = Job("a b", work)
    begun = time.monotonic()
    assert run(job) == [""] and seen == [-9]
    assert time.monotonic() - begun < 60 and job.cpu > 0
    out = capsys.readouterr().out
    assert "a b | hello\n" in out and "s in a test" in out and "killed in a test" in out
    assert (tmp_path / "log").read_text() == "hello\n"


def test_sigint_is_not_ignored_in_the_background():
    """A shell that starts a job in the background has it ignore SIGINT, and programs inherit that."""
    code = """
import signal, subprocess, sys
sys.path.insert(0, ".")
from tools.dev import commands
asked = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"]
commands.cmd_pythons = lambda options: subprocess.call(asked)
sys.exit(commands.main(["pythons"]))
"""
    command = ["sh", "-c", f"trap '' INT; exec {sys.executable} -c '{code}'"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


# -- soaks


def test_each_soak_is_complete():
    there = soak.soaks()
    assert len(soak.listing()) == len(there)
    for found in there.values():
        assert found.command and found.seconds > 0
        assert all((ROOT / word).exists() for word in found.command if word.endswith(".py"))
    with pytest.raises(StepFailed, match="expected names of soaks"):
        soak.jobs_for([], ["nonsense"], short=False)
