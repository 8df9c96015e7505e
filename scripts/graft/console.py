"""What people see: progress, tables and errors on stderr, the result alone on stdout.

On a terminal rich draws; in a pipe or CI every message is one plain line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console as Rich
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from graft.errors import GraftError

LINE_EVERY_SECONDS = 5.0
PLAIN_WIDTH = 160


class Console:
    """The one writer to stderr and stdout.

    json_mode: results and errors are one JSON document on stdout; people's lines still go to stderr.
    """

    def __init__(self, json_mode: bool = False) -> None:
        self.json_mode = json_mode
        self._answered = False
        terminal = sys.stderr.isatty() and not os.environ.get("CI")
        self._rich = Rich(
            stderr=True,
            force_terminal=terminal,
            highlight=False,
            soft_wrap=True,
            # `name:x:` is a reference and no picture.
            emoji=False,
            width=None if terminal else PLAIN_WIDTH,
        )

    @property
    def is_terminal(self) -> bool:
        return self._rich.is_terminal

    def say(self, text: str) -> None:
        """One line of progress."""
        self._rich.print(_plain(text))

    def warn(self, text: str) -> None:
        self._rich.print(f"[yellow]warning:[/yellow] {_plain(text)}")

    def result(self, line: str, data: Any = None) -> None:
        """The result: `line` for people and scripts, `data` with --json. A verdict may be followed by an error."""
        self._answered = True
        print(json.dumps(data if data is not None else {"result": line}, indent=1) if self.json_mode else _lines(line))

    def error(self, problem: GraftError) -> None:
        """An error: the end of the output, what happened, where, and what to do."""
        if problem.tail:
            for line in problem.tail.splitlines():
                self._rich.print(f"[dim]  | {_plain(line)}[/dim]")
        place = f"{problem.where}: " if problem.where else ""
        self._rich.print(f"[bold red]error:[/bold red] {_plain(place + problem.what)}")
        if problem.cure:
            self._rich.print(f"  [green]what to do:[/green] {_plain(problem.cure)}")
        if self.json_mode and not self._answered:
            print(json.dumps(problem.as_dict(), indent=1))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table for people."""
        table = Table(title=_plain(title), title_justify="left", show_edge=False, pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(_plain(cell) for cell in row))
        self._rich.print(table)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A named step: said when it starts, with its seconds when it ends well."""
        self.say(f"• {name}")
        started = time.monotonic()
        yield
        self._rich.print(f"[green]✓[/green] {_plain(name)} [dim]{time.monotonic() - started:.1f} s[/dim]")

    @contextlib.contextmanager
    def bytes_progress(self, title: str, total: int) -> Iterator[ByteMeter]:
        """A bar of bytes with rate and time left on a terminal, else a line every few seconds."""
        if self.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=self._rich, transient=True) as bar:
                task = bar.add_task(_plain(title), total=total)
                yield ByteMeter(lambda count: bar.advance(task, count))
            return
        yield ByteMeter(_LineMeter(self, title, total).add)


class ByteMeter:
    """Counts bytes from several threads."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def add(self, count: int) -> None:
        self._sink(count)


class _LineMeter:
    def __init__(self, console: Console, title: str, total: int) -> None:
        self._console, self._title, self._total = console, title, total
        self._done = 0
        self._started = self._last = time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._last < LINE_EVERY_SECONDS:
            return
        self._last = now
        rate = self._done / (now - self._started)
        left = (self._total - self._done) / rate if rate > 0 else 0.0
        self._console.say(
            f"  {self._title}: {size(self._done)} of {size(self._total)}, {size(int(rate))}/s, {left:.0f} s left"
        )


def printable(text: str) -> str:
    """Text of others on one line, without what a terminal would obey: control and direction characters."""
    if text.isprintable():
        return text
    return "".join(c if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else "?" for c in text)


def _lines(text: str) -> str:
    """The same for text of several lines, which may have tabs."""
    return text if text.isprintable() else "".join(c if c in "\n\t" else printable(c) for c in text)


def _plain(text: str) -> str:
    """Text that rich prints as it is: no markup, and nothing that a terminal would obey."""
    return escape(_lines(text))


def size(count: int) -> str:
    """Bytes for people, decimal units as disks and networks are sold."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError
