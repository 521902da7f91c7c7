"""Tables of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from noonward.errors import FileError
from noonward.live.store.database import Connection

LAST_PART: Final = "part.last"
"""Name in the table ``meta`` of what is left of a decision that was made and is not written yet (``live.decided``)."""
VERSION: Final = 17
"""Version of the tables; newer stores are refused, older ones are brought up to date from ``min(UPGRADES)`` on."""
NEEDS: Final = """
CREATE TABLE needs (job INTEGER NOT NULL, needed INTEGER NOT NULL, PRIMARY KEY (job, needed)) WITHOUT ROWID;
"""
PUBLISHED: Final = """
CREATE TABLE published (hour INTEGER PRIMARY KEY, value BLOB NOT NULL);
"""
RUN_TIMES: Final = """
ALTER TABLE jobs ADD COLUMN run_by TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN told TEXT;
"""
RUNNING_JOBS: Final = """
ALTER TABLE jobs ADD COLUMN resumed_s REAL;
ALTER TABLE jobs ADD COLUMN finish_s REAL;
ALTER TABLE jobs ADD COLUMN running_place INTEGER NOT NULL DEFAULT -1;
ALTER TABLE jobs ADD COLUMN cap INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN life TEXT;
ALTER TABLE outbox ADD COLUMN gpus INTEGER;
ALTER TABLE outbox ADD COLUMN wish_s REAL;
ALTER TABLE outbox ADD COLUMN signalled_s REAL;
ALTER TABLE outbox ADD COLUMN stopped_s REAL;
ALTER TABLE outbox ADD COLUMN cap INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN cap_wanted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN nodes TEXT;
DROP INDEX jobs_open;
CREATE INDEX jobs_open ON jobs (id)
    WHERE state IN ('submitted', 'transit', 'waiting', 'starting', 'running', 'suspended');
CREATE INDEX outbox_capped ON outbox (site) WHERE cap <> 0;
"""
IMAGES: Final = """
CREATE TABLE images (id INTEGER PRIMARY KEY, record TEXT NOT NULL);
"""
"""Images of ``noonward edge``, whose store is of the same kind: tokens, backups and locks are shared."""
GRID_EVENTS: Final = """
CREATE TABLE grid_events (
    id INTEGER PRIMARY KEY, key TEXT UNIQUE, site TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL NOT NULL,
    known_s REAL NOT NULL, baseline_kw REAL NOT NULL, target_kw REAL NOT NULL, ramp_s REAL NOT NULL,
    usd_per_mwh REAL NOT NULL, penalty_usd_per_mwh REAL NOT NULL, told_by TEXT NOT NULL, cancelled_s REAL,
    cancelled_by TEXT
);
CREATE TABLE power (
    site TEXT NOT NULL, from_s REAL NOT NULL, measured_kw REAL, estimated_kw REAL, PRIMARY KEY (site, from_s)
) WITHOUT ROWID;
"""
"""Grid events, with times in s since the service's start, and the mean power of sites by metering interval. ``key``
names an event at its source; those that operators call have none."""
PRIORITY: Final = """
ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
"""
SEEN: Final = """
CREATE TABLE seen (id TEXT PRIMARY KEY, at_s REAL NOT NULL, sites TEXT NOT NULL);
"""
"""What decisions saw of the sites, a row per site as JSON: its digest, and the time at which it was noted last. With a
``base`` it has rows of the sites alone that changed since that one. A decision says in ``seen`` which it was, and in
``candidates`` for each site 1 where it was feasible, else 0; those that older versions wrote hold both as JSON in
``candidates``."""
SEEN_CHANGES: Final = """
ALTER TABLE seen ADD COLUMN base TEXT;
"""
UPGRADES: Final[Mapping[int, str]] = {
    8: NEEDS,
    9: PUBLISHED,
    10: RUN_TIMES,
    11: RUNNING_JOBS,
    12: IMAGES,
    13: GRID_EVENTS,
    14: PRIORITY,
    15: SEEN + "ALTER TABLE decisions ADD COLUMN seen TEXT;\n",
    16: SEEN_CHANGES,
}
"""Statements that bring tables of a version to the next one."""
TABLES: Final = (
    NEEDS
    + PUBLISHED
    + IMAGES
    + GRID_EVENTS
    + SEEN
    + SEEN_CHANGES
    + """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    key TEXT,
    digest BLOB NOT NULL,
    name TEXT NOT NULL,
    request BLOB NOT NULL,
    state TEXT NOT NULL DEFAULT 'submitted',
    held INTEGER NOT NULL DEFAULT 0,
    cancelling INTEGER NOT NULL DEFAULT 0,
    pinned TEXT,
    vetoed TEXT NOT NULL DEFAULT '[]',
    owner TEXT NOT NULL DEFAULT '',
    run_by TEXT NOT NULL DEFAULT '',
    origin TEXT NOT NULL,
    class TEXT NOT NULL,
    gpus_min INTEGER NOT NULL,
    gpus_max INTEGER NOT NULL,
    work REAL NOT NULL,
    max_delay_s REAL,
    move_gb REAL NOT NULL,
    result_gb REAL NOT NULL,
    retries INTEGER NOT NULL,
    submitted_s REAL NOT NULL,
    arrival_s REAL NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    serial INTEGER,
    slot INTEGER,
    place INTEGER,
    moves INTEGER NOT NULL DEFAULT 0,
    site TEXT,
    gpus INTEGER NOT NULL DEFAULT 0,
    level INTEGER NOT NULL DEFAULT -1,
    earliest_s REAL NOT NULL DEFAULT 0,
    reach_s REAL,
    start_s REAL,
    run_s REAL,
    power_w REAL,
    freed_s REAL,
    token TEXT,
    began_s REAL,
    ended_s REAL,
    exit_code INTEGER,
    reason TEXT,
    told TEXT,
    resumed_s REAL,
    finish_s REAL,
    running_place INTEGER NOT NULL DEFAULT -1,
    cap INTEGER NOT NULL DEFAULT 0,
    life TEXT,
    priority INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX jobs_key ON jobs (key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX jobs_token ON jobs (token) WHERE token IS NOT NULL;
CREATE INDEX jobs_open ON jobs (id)
    WHERE state IN ('submitted', 'transit', 'waiting', 'starting', 'running', 'suspended');
CREATE INDEX jobs_new ON jobs (arrival_s, id) WHERE state = 'submitted' AND serial IS NULL;
CREATE INDEX jobs_ended ON jobs (ended_s) WHERE ended_s IS NOT NULL;
CREATE INDEX jobs_taken ON jobs (id) WHERE start_s IS NOT NULL AND freed_s IS NULL;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, job INTEGER, kind TEXT NOT NULL, data TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX events_of_job ON events (job) WHERE job IS NOT NULL;
CREATE INDEX events_of_none ON events (at_s) WHERE job IS NULL;
CREATE TABLE outbox (
    token TEXT PRIMARY KEY, job INTEGER NOT NULL, site TEXT NOT NULL, stage TEXT NOT NULL, handle TEXT,
    tries INTEGER NOT NULL DEFAULT 0, gpus INTEGER, wish_s REAL, signalled_s REAL, stopped_s REAL,
    cap INTEGER NOT NULL DEFAULT 0, cap_wanted INTEGER NOT NULL DEFAULT 0, nodes TEXT
);
CREATE INDEX outbox_capped ON outbox (site) WHERE cap <> 0;
CREATE INDEX outbox_stage ON outbox (site, stage);
CREATE INDEX outbox_of_job ON outbox (job);
CREATE TABLE signals (
    zone TEXT NOT NULL, hour INTEGER NOT NULL, price REAL NOT NULL, carbon REAL NOT NULL, source TEXT NOT NULL,
    true_price REAL, true_carbon REAL, stored_s REAL NOT NULL, PRIMARY KEY (zone, hour)
) WITHOUT ROWID;
CREATE TABLE forecasts (hour INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, job INTEGER NOT NULL, attempt INTEGER NOT NULL,
    serial INTEGER NOT NULL, policy TEXT NOT NULL, asker TEXT, choice TEXT,
    gpus INTEGER NOT NULL, level INTEGER NOT NULL, earliest_s REAL NOT NULL, candidates TEXT NOT NULL,
    seen TEXT
);
CREATE INDEX decisions_of_job ON decisions (job);
CREATE TABLE sites (
    name TEXT PRIMARY KEY, gpus INTEGER NOT NULL, drained INTEGER NOT NULL DEFAULT 0,
    withheld INTEGER NOT NULL DEFAULT 0,
    reachable INTEGER NOT NULL DEFAULT 1, seen_s REAL, remark TEXT NOT NULL DEFAULT '',
    dispatch INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;
CREATE TABLE tokens (
    name TEXT PRIMARY KEY, scope TEXT NOT NULL, hash BLOB NOT NULL UNIQUE, made_at TEXT NOT NULL, expires_at TEXT
) WITHOUT ROWID;
CREATE TABLE audit (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL, detail TEXT NOT NULL
);
CREATE TABLE watched (
    site TEXT NOT NULL, number TEXT NOT NULL, submit_s REAL NOT NULL, job INTEGER, gpus INTEGER NOT NULL,
    state TEXT NOT NULL, start_s REAL, end_s REAL, expected_s REAL, power_w REAL,
    PRIMARY KEY (site, number, submit_s)
) WITHOUT ROWID;
CREATE INDEX watched_jobs ON watched (job) WHERE job IS NOT NULL;
CREATE INDEX watched_open ON watched (site) WHERE end_s IS NULL;
CREATE TABLE journal (id INTEGER PRIMARY KEY, opened_s REAL, after_event INTEGER, inputs BLOB NOT NULL);
CREATE INDEX journal_opened ON journal (opened_s) WHERE opened_s IS NOT NULL;
CREATE TABLE curves (hour INTEGER PRIMARY KEY, value BLOB NOT NULL, hard INTEGER NOT NULL, made_s REAL NOT NULL);
"""
)
"""Tables of a new store. In older ones every row of ``jobs`` is in the indexes of keys and tokens, also without one."""
OPEN: Final = ("submitted", "transit", "waiting", "starting", "running", "suspended")
"""States of jobs that have not ended."""
ENDED: Final = ("done", "failed", "cancelled", "overdue", "lost")
"""States of jobs that have ended."""
IS_OPEN: Final = f"state IN {OPEN}"
"""Whether a job has not ended, word for word as in the index of open jobs: otherwise SQLite does not use it."""


def require_version(version: int, title: str) -> None:
    """Raises FileError where a store has tables of another version.

    Args:
        version: Its version; 0: it has no tables yet.
        title: What messages call it.
    """
    if version > VERSION:
        raise FileError(
            f"the store {title} has version {version}, this program knows version {VERSION}; update noonward, or "
            "restore a backup made with this version"
        )
    if 0 < version < min(UPGRADES):
        raise FileError(
            f"the store {title} has version {version}, made before the first release, and cannot be brought up to "
            f"version {VERSION}; begin in another folder or database"
        )


def require_written(connection: Connection, version: int, title: str) -> None:
    """Raises FileError where tables are to be brought up to date that an older program left in the midst of a decision.

    What is left of it is written as that program writes it, so that nobody else can.

    Args:
        connection: Connection to the store.
        version: Version of its tables; 0: it has none.
        title: What messages call it.
    """
    if 0 < version < VERSION and connection.execute("SELECT 1 FROM meta WHERE name = ?", (LAST_PART,)).fetchone():
        raise FileError(unfinished(title, f"an older noonward, whose store has version {version},"))


def unfinished(title: str, by: str) -> str:
    """Returns what to do with a store that another program left in the midst of a decision.

    Args:
        title: What messages call the store.
        by: What that program is called.
    """
    return (
        f"the store {title} holds a decision that {by} had not written to the end when it was ended, and that this one "
        "cannot read; nothing was changed. Start that one over the store once more, stop it when /readyz answers, and "
        "then start this one"
    )


def statements(version: int) -> str:
    """Returns what brings tables of a version, or none (0), up to date; empty for those that are."""
    return TABLES if version == 0 else "".join(UPGRADES[each] for each in range(version, VERSION))


def version_of(connection: sqlite3.Connection, title: str) -> int:
    """Returns the version of a file's tables; 0: it has none.

    Raises:
        FileError: It is newer than the program, or too old.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    require_version(version, title)
    return version


def make_tables(connection: sqlite3.Connection, title: str) -> None:
    """Makes the tables of a file that has none, or brings older ones up to date, all or none of them.

    Raises:
        FileError: The file has tables of a version that cannot be brought up to date.
    """
    if needed := statements(version_of(connection, title)):
        try:
            connection.executescript(f"BEGIN IMMEDIATE; {needed}; PRAGMA user_version = {VERSION}; COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
