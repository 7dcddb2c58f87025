"""The client of the back door on a pseudo terminal, and the recording in the manual, which is such a session."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import program

DOCS = Path(__file__).resolve().parents[3] / "docs"

pytestmark = [
    pytest.mark.slow,  # each starts two Pythons
    pytest.mark.skipif(not DOCS.is_dir(), reason="the recorder is part of the manual, in the repository only"),
]


@pytest.fixture(scope="module")
def recorder():
    spec = importlib.util.spec_from_file_location("record_backdoor", DOCS / "examples" / "record_backdoor.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_recording_in_the_manual_is_what_happens():
    shown = (DOCS / "operate" / "backdoor_session.txt").read_text("utf-8")
    # In a process of its own, because it forks and pytest may have OS threads.
    done = subprocess.run(
        [sys.executable, DOCS / "examples" / "record_backdoor.py"], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == shown, "run docs/examples/record_backdoor.py docs/operate/backdoor_session.txt"


SERVER = """
import coro, sys
from coro import backdoor

def main():
    backdoor.start(unix_path={path!r}, global_dict={{"waits": waits}})
    backdoor.start(0, token="geheim", global_dict={{}}) if {token} else None
    client = coro.in_thread(run)
    print(client)

def waits():
    print("waiting now")
    coro.sleep_relative(1000)

def run():
    import subprocess
    return subprocess.run([sys.executable, "-c", {typist!r}], timeout=50).returncode

coro.run(main)
"""


def converse(tmp_path, recorder, script):
    """Type a conversation at the client of a program that serves ``waits``; what the terminal showed."""
    path = str(tmp_path / "door")
    typist = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("record_backdoor", {recorder.__file__!r})
recorder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recorder)
terminal = recorder.Terminal([sys.executable, "-m", "coro.backdoor", {path!r}], HOME={str(tmp_path)!r})
patience, recorder.PATIENCE, typed = recorder.PATIENCE, 3, ""
for wait, text in {script!r}:
    for _ in range(12):
        try:
            terminal.until(wait)
            break
        except TimeoutError:
            # readline does not notice a signal that comes just before it waits for a key. People press Ctrl-C again.
            if typed == "\\x03":
                terminal.type(typed)
    else:
        sys.exit(f"{{wait!r}} did not come: {{terminal.shown!r}}")
    terminal.type(text)
    typed = text
recorder.PATIENCE = patience
status = terminal.end()
print(terminal.shown)
sys.exit(status)
"""
    outcome = program(SERVER.format(path=path, token=False, typist=typist))
    assert outcome.code == 0 and outcome.err == "", (outcome.err, outcome.out)
    return outcome.out


def test_ctrl_c_interrupts_the_command_and_ctrl_d_leaves(tmp_path, recorder):
    shown = converse(
        tmp_path,
        recorder,
        [(">>> ", "waits()\n"), ("waiting now", "\x03"), (">>> ", "1 + 1\n"), ("2\n>>> ", "\x03"), (">>> ", "\x04")],
    )
    assert re.search(r"waiting now\n(\^C)?Traceback.*\nKeyboardInterrupt\n>>> 1 \+ 1\n2\n", shown, re.S)
    assert (tmp_path / ".coro_backdoor_history").read_text().split()[-4:] == ["waits()", "1", "+", "1"]
    assert os.stat(tmp_path / ".coro_backdoor_history").st_mode & 0o077 == 0


def test_input_of_the_program_and_completion_of_attributes(tmp_path, recorder):
    shown = converse(
        tmp_path,
        recorder,
        [
            (">>> ", "input('name? ')\n"),
            ("name? ", "Bob\n"),
            (">>> ", "'x'.join; coro.get_stack_sl\t\n"),
            (">>> ", "\x04"),
        ],
    )
    assert "name? Bob" in shown and "'Bob'" in shown
    assert "coro.get_stack_slots" in shown


def test_no_such_server(tmp_path):
    outcome = program(
        f"""
        import sys
        from coro.backdoor import _client
        sys.exit(_client.main([{str(tmp_path / "nothing")!r}]))
        """
    )
    assert outcome.code == 1 and "cannot connect to" in outcome.err


def test_a_process_without_a_back_door(tmp_path):
    """The path that was tried is told, for whoever knows the process only by its number."""
    outcome = program(
        f"""
        import os, sys
        os.environ["XDG_RUNTIME_DIR"] = {str(tmp_path)!r}
        from coro.backdoor import _client
        sys.exit(_client.main(["4194304999"]))
        """
    )
    assert outcome.code == 1
    assert outcome.err.startswith("there is no process 4194304999, ") and f"'{tmp_path}/" in outcome.err


def test_addresses():
    from coro.backdoor import _client

    with pytest.raises(OSError):
        _client.connect("127.0.0.1:1")
    with pytest.raises(OSError):
        _client.connect("4194304999")
    assert _client.main(["/nonexistent/door"]) == 1
    assert sys.modules["coro.backdoor._client"] is _client


@pytest.mark.skipif(hasattr(sys, "remote_exec"), reason="from Python 3.14 on a session gets in, see test_attach.py")
@pytest.mark.parametrize(("module", "door"), [("backdoor", "back door"), ("debug", "debug door")])
def test_a_process_without_an_open_door_is_said_so(tmp_path, module, door):
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}

    def client(address):
        command = [sys.executable, "-m", f"coro.{module}", str(address)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)

    done = client(os.getpid())
    assert done.returncode == 1
    path = tmp_path / "coro" / f"{os.getpid()}.{module}"
    assert done.stderr.startswith(f"no {door} is open in process {os.getpid()}: nobody listens at {str(path)!r}.")
    assert f"coro.{module}.start()" in done.stderr
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    done = client(ended.pid)
    assert done.returncode == 1
    assert done.stderr.startswith(f"there is no process {ended.pid}, and nobody listens at ")
