"""The one door for processes: what ends, what is shown, and what a program gets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graft import proc
from graft.errors import BuildFailed, FetchFailed, GraftError

PY = sys.executable
SCRIPTS = Path(proc.__file__).parents[1]


def until(done: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether `done` became true in time."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def a_pid(path: Path) -> int:
    assert until(lambda: path.is_file() and path.read_text().endswith("\n"))
    return int(path.read_text())


def test_output_and_status_come_back() -> None:
    done = proc.run([PY, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], check=False)
    assert (done.rc, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert done.argv[0] == PY


def test_words_are_not_a_shell_line(tmp_path: Path) -> None:
    word = f"$(touch {tmp_path}/made); `touch {tmp_path}/made` 'x"
    assert proc.run(["printf", "%s", word]).stdout == word
    assert not (tmp_path / "made").exists()


def test_bytes_that_are_not_text_are_replaced() -> None:
    assert proc.run(["printf", r"a\377b\n"]).stdout == "a�b\n"


def test_a_failure_shows_the_end_of_the_output() -> None:
    say = "print('line', i, flush=True) if i != 5 else print('the cause', file=sys.stderr)"
    code = f"import sys\nfor i in range(500): {say}\nsys.exit(9)"
    with pytest.raises(BuildFailed) as caught:
        proc.run([PY, "-c", code], what="compiling x", cure="look at it")
    problem = caught.value
    assert (problem.what, problem.cure) == ("compiling x (exit 9)", "look at it")
    assert problem.tail is not None
    lines = problem.tail.splitlines()
    assert proc.TAIL_LINES <= len(lines) <= proc.TAIL_LINES + 1
    assert {"the cause", "line 499"} <= set(lines)
    assert "line 0" not in lines


def test_a_silent_failure_shows_the_command() -> None:
    with pytest.raises(BuildFailed) as caught:
        proc.run([PY, "-c", "raise SystemExit(1)"])
    assert caught.value.tail == proc.quoted([PY, "-c", "raise SystemExit(1)"])


@pytest.mark.parametrize("program", ["no-such-program-here", "/dev/null"])
def test_a_program_that_cannot_start_raises_the_callers_error(program: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        proc.run([program, "x"], error=FetchFailed, what="asking the index", cure="install it")
    assert caught.value.what.startswith("asking the index: ")
    assert caught.value.what.endswith(program)
    assert caught.value.cure == "install it"


def test_the_environment_is_the_given_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFT_LEAK", "secret")
    assert proc.run(["/usr/bin/env"], env={"ONLY": "this"}).stdout == "ONLY=this\n"
    assert "GRAFT_LEAK=secret" in proc.run(["/usr/bin/env"]).stdout


def test_stdin_is_closed_unless_given() -> None:
    started = time.monotonic()
    assert proc.run(["cat"], timeout=10).stdout == ""
    assert time.monotonic() - started < 5
    assert proc.run(["cat"], stdin=b"words").stdout == "words"


def test_a_program_may_end_before_it_has_read_its_stdin() -> None:
    assert proc.run(["true"], stdin=b"x" * 1_000_000, timeout=10).rc == 0


def test_the_time_limit_holds_for_a_program_that_does_not_read_its_stdin() -> None:
    started = time.monotonic()
    with pytest.raises(GraftError, match=r"no end after 0\.5 s"):
        proc.run(["sleep", "60"], stdin=b"x" * 1_000_000, timeout=0.5)
    assert time.monotonic() - started < 5


def test_much_output_on_both_streams_blocks_nothing() -> None:
    code = "import sys\nfor i in range(20000): print('o' * 50); print('e' * 50, file=sys.stderr)"
    done = proc.run([PY, "-c", code], timeout=60)
    assert len(done.stdout) == len(done.stderr) == 20000 * 51


def test_lines_reach_the_callback_and_the_log(tmp_path: Path) -> None:
    seen: list[str] = []
    log = tmp_path / "log"
    log.write_text("before\n")
    proc.run(["sh", "-c", "echo a; echo b; printf c"], on_line=seen.append, log=log)
    assert seen == ["a", "b", "c"]
    assert log.read_text() == "before\na\nb\nc"


def test_a_callback_that_fails_does_not_block_the_program() -> None:
    def refuse(line: str) -> None:
        raise RuntimeError(line)

    with pytest.raises(RuntimeError, match="first"):
        proc.run([PY, "-c", "print('first')\nfor i in range(20000): print('x' * 50)"], on_line=refuse, timeout=20)


def test_a_time_limit_ends_the_whole_group(tmp_path: Path) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/child; echo started; wait"
    started = time.monotonic()
    with pytest.raises(BuildFailed) as caught:
        proc.run(["sh", "-c", script], timeout=1, what="waiting", cure="do not")
    assert time.monotonic() - started < 8
    assert caught.value.what == "waiting: no end after 1 s"
    assert (caught.value.tail, caught.value.cure) == ("started", "do not")
    assert until(lambda: gone(a_pid(tmp_path / "child")))


def test_a_program_that_ignores_the_interrupt_is_killed() -> None:
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('on', flush=True); time.sleep(300)"
    process = subprocess.Popen([PY, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    proc.end_group(process, grace=0.3)
    assert process.wait(5) == -signal.SIGKILL
    process.stdout.close()


def test_a_program_may_clean_up_when_it_is_interrupted(tmp_path: Path) -> None:
    code = f"""
        import pathlib, time
        try:
            print("on", flush=True)
            # Short sleeps: a signal that comes just before a long one would be seen only after it.
            while True:
                time.sleep(0.1)
        except KeyboardInterrupt:
            pathlib.Path({str(tmp_path / "cleaned")!r}).touch()
    """
    process = subprocess.Popen([PY, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    proc.end_group(process, grace=10)
    assert process.wait(5) == 0
    assert (tmp_path / "cleaned").exists()
    process.stdout.close()


def driver(tmp_path: Path, script: str, *, grace: float) -> subprocess.Popen[str]:
    """A python that runs `script` through proc.run and says what it raised; its children's pids lie in tmp_path."""
    code = f"""
        import sys
        from graft import proc
        from graft.errors import Interrupted
        end_group = proc.end_group
        proc.end_group = lambda process: end_group(process, {grace})
        try:
            proc.run(["sh", "-c", {script!r}])
        except Interrupted as problem:
            print(problem.exit_code, problem.what)
        except KeyboardInterrupt:
            print("again")
    """
    env = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    return subprocess.Popen([PY, "-c", textwrap.dedent(code)], env=env, stdout=subprocess.PIPE, text=True, cwd=tmp_path)


def test_an_interrupt_ends_the_group_and_is_reported(tmp_path: Path) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/leader; wait"
    running = driver(tmp_path, script, grace=5)
    child, leader = a_pid(tmp_path / "child"), a_pid(tmp_path / "leader")
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=15)
    assert out == "130 interrupted while running sh\n"
    assert until(lambda: gone(child) and gone(leader))


def test_an_interrupt_while_a_program_starts_ends_it_too(tmp_path: Path) -> None:
    code = f"""
        import os, signal, subprocess
        from graft import proc
        from graft.errors import Interrupted
        start = subprocess.Popen
        def interrupted(*words, **options):
            made = start(*words, **options)
            os.kill(os.getpid(), signal.SIGINT)
            return made
        proc.subprocess.Popen = interrupted
        try:
            proc.run(["sh", "-c", "echo $$ > {tmp_path}/leader; exec sleep 300"])
        except Interrupted:
            print("interrupted")
    """
    env = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    argv = [PY, "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, cwd=tmp_path, timeout=30, check=False)
    assert done.stdout == "interrupted\n", done.stderr
    pid = (tmp_path / "leader").read_text() if (tmp_path / "leader").exists() else ""
    assert not pid or until(lambda: gone(int(pid)))


def test_an_interrupt_before_its_output_is_read_ends_it_too(tmp_path: Path) -> None:
    code = """
        import os, signal
        from pathlib import Path
        from graft import proc
        from graft.errors import Interrupted
        class Late(proc._Pumps):
            def __init__(self, process, *rest):
                Path("pid").write_text(str(process.pid))
                os.kill(os.getpid(), signal.SIGINT)
                super().__init__(process, *rest)
        proc._Pumps = Late
        try:
            proc.run(["sleep", "300"])
        except Interrupted:
            print("interrupted")
    """
    env = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    argv = [PY, "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, cwd=tmp_path, timeout=30, check=False)
    assert done.stdout == "interrupted\n", done.stderr
    assert until(lambda: gone(int((tmp_path / "pid").read_text())))


def test_a_second_interrupt_leaves_nothing_alive(tmp_path: Path) -> None:
    script = f"trap '' INT; echo $$ > {tmp_path}/leader; while :; do sleep 1; done"
    running = driver(tmp_path, script, grace=30)
    leader = a_pid(tmp_path / "leader")
    running.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=15)
    assert out == "again\n"
    assert until(lambda: gone(leader))


def test_a_grandchild_that_holds_the_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "GRACE_SECONDS", 0.5)
    script = f"setsid sh -c 'echo $$ > {tmp_path}/child; exec sleep 60' & echo said"
    started = time.monotonic()
    try:
        done = proc.run(["sh", "-c", script], log=tmp_path / "log")
        assert time.monotonic() - started < 5
        assert (done.rc, done.stdout) == (0, "said\n")
    finally:
        os.kill(a_pid(tmp_path / "child"), signal.SIGKILL)
