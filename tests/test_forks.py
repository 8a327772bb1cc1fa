"""A child that was forked beside writers in other threads writes, too: no transaction is under way at a fork (G1)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from langmem_adapters import forks
from langmem_adapters.database import Database

SCHEMA = ("CREATE TABLE notes (text TEXT)",)


def write(database: Database) -> None:
    with database.writing() as connection:
        connection.execute("INSERT INTO notes VALUES ('a note')")


def forked_write(database: Database) -> int:
    """The exit code of a child that writes; negative, where it hung."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            write(database)
        except BaseException:  # noqa: BLE001 - the parent is told
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_g1_a_child_forked_beside_a_writer_writes(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db", schema=SCHEMA, name="notes")
    write(database)
    inside, finish = threading.Event(), threading.Event()

    def slow() -> None:
        with database.writing() as connection:
            connection.execute("INSERT INTO notes VALUES ('slow')")
            inside.set()
            assert finish.wait(20)

    thread = threading.Thread(target=slow)
    thread.start()
    assert inside.wait(20)
    threading.Timer(0.05, finish.set).start()  # the fork waits for it
    assert forked_write(database) == 0
    thread.join()
    assert forks._under_way == {}
    write(database)
    assert database.look("SELECT count(*) FROM notes", ()) == [(4,)]
    database.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_g1_who_forks_within_a_transaction_waits_for_nobody(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db", schema=SCHEMA, name="notes")
    with database.writing() as connection:
        connection.execute("INSERT INTO notes VALUES ('mine')")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    write(database)
    database.close()
