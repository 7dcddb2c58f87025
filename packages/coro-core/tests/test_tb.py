"""One-line stacks and tracebacks."""

import ast
import os
import sys

import pytest

from coro import tb

HERE = "/".join(os.path.abspath(__file__).split(os.sep)[-2:])


def fails(depth=2):
    if depth:
        fails(depth - 1)
    else:
        raise ValueError("a 'quoted' text")


def caught():
    try:
        fails()
    except ValueError as e:
        return e


def test_stack_string_from_here():
    line = sys._getframe().f_lineno + 1
    text = tb.stack_string()
    places = text.split("] [")
    assert places[0] == f"[{HERE} test_stack_string_from_here|{line}"
    assert text.endswith("]")
    depth, f = 0, sys._getframe()
    while f is not None:
        depth, f = depth + 1, f.f_back
    assert len(places) == depth


def test_stack_string_of_a_frame():
    def inner():
        return sys._getframe()

    frame = inner()
    assert tb.stack_string(frame).startswith(f"[{HERE} inner|{frame.f_lineno}]")
    with pytest.raises(TypeError, match="expected a frame, got str"):
        tb.stack_string("frame")


def test_short_names():
    code = compile("import sys\nf = sys._getframe()", "<string>", "exec")
    space = {}
    exec(code, space)
    assert tb.stack_string(space["f"]).startswith("[<string> <module>|")
    exec(compile("import sys\nf = sys._getframe()", "x.py", "exec"), space)
    assert tb.stack_string(space["f"]).startswith("[x.py <module>|")
    exec(compile("import sys\nf = sys._getframe()", "/x.py", "exec"), space)
    assert tb.stack_string(space["f"]).startswith("[/x.py <module>|")


def test_traceback_data():
    e = caught()
    kind, value, places = tb.traceback_data(e)
    assert (kind, value) == ("<class 'ValueError'>", "a 'quoted' text")
    assert [p[1] for p in places] == ["caught", "fails", "fails", "fails"]
    assert {p[0] for p in places} == {HERE}
    line = fails.__code__.co_firstlineno
    assert [p[2] for p in places] == [caught.__code__.co_firstlineno + 2, line + 2, line + 2, line + 4]


def test_all_ways_to_name_the_exception():
    e = caught()
    expected = tb.traceback_data(e)
    assert tb.traceback_data(type(e), e, e.__traceback__) == expected
    assert tb.traceback_data(type(e), e) == expected
    assert tb.traceback_data(e, None, e.__traceback__.tb_next)[2] == expected[2][1:]
    assert tb.traceback_data(t=e) == expected
    try:
        raise e
    except ValueError:
        now = tb.traceback_data()
        text = tb.traceback_string()
    assert now[:2] == expected[:2]
    here = "test_all_ways_to_name_the_exception"
    assert [p[1] for p in now[2]] == [here, "caught", "fails", "fails", "fails"]
    assert text == tb.traceback_string(e)


def test_traceback_string():
    e = caught()
    text = tb.traceback_string(e)
    assert "\n" not in text
    innermost, kind, value, places = ast.literal_eval(text)
    last = tb.traceback_data(e)[2][-1]
    assert innermost == f"[{last[0]} {last[1]}|{last[2]}]"
    assert (kind, value) == ("<class 'ValueError'>", "a 'quoted' text")
    assert places.endswith(innermost)
    assert places.startswith(f"[{HERE} caught|")


def test_without_a_traceback():
    for args in ((), (None, None, None)):
        assert tb.traceback_string(*args) == "There is no exception and no traceback: it is None"
    for args in ((ValueError("x"),), (ValueError, "x", None)):
        assert ast.literal_eval(tb.traceback_string(*args)) == ("[]", "<class 'ValueError'>", "x", "[]")
    assert tb.traceback_data() == ("None", "None", [])
    assert tb.traceback_data(ValueError("x")) == ("<class 'ValueError'>", "x", [])


def test_wrong_traceback():
    for function in (tb.traceback_string, tb.traceback_data):
        with pytest.raises(TypeError, match="expected a traceback, got int"):
            function(ValueError, ValueError("x"), 3)


def test_an_exception_that_cannot_be_printed():
    class Bad(Exception):
        def __str__(self):
            raise KeyError("inside")

    try:
        raise Bad
    except Bad as e:
        assert tb.traceback_data(e)[1] == "<unprintable Bad: str() raised KeyError>"
        assert "unprintable" in tb.traceback_string(e)


@pytest.mark.parametrize("inside", [SystemExit, GeneratorExit])
def test_an_exception_whose_text_ends_programs(inside):
    class Bad(Exception):
        def __str__(self):
            raise inside

    assert tb.traceback_data(Bad())[1] == f"<unprintable Bad: str() raised {inside.__name__}>"


def test_a_frame_without_a_line():
    # instructions without a line number: all entries of the table removed
    def function():
        raise ValueError("x")

    code = function.__code__
    function.__code__ = code.replace(co_linetable=bytes([0xF8 | min(7, len(code.co_code) // 2 - 1)]))
    try:
        function()
    except ValueError as e:
        _, _, places = tb.traceback_data(e)
        assert places[-1][2] is None
        assert "function|?]" in tb.traceback_string(e)


def test_from_inside_a_generator_and_nested_calls():
    def gen():
        yield tb.stack_string()

    names = [p.split()[1].split("|")[0] for p in next(gen()).strip("[]").split("] [")]
    assert names[:2] == ["gen", "test_from_inside_a_generator_and_nested_calls"]
