-- +goose Up
-- Rows of these tables hold outputs of commands and bodies of messages. Without a rowid such a row is a key of the
-- table's tree, and each search in the tree reads whole rows: recording a command took 2.5 times as long with outputs
-- of 64 KiB, and 6 times with outputs of 1 KB.
CREATE TABLE execs_by_rowid (
    id            TEXT    NOT NULL PRIMARY KEY,
    named         INTEGER NOT NULL, -- 1: its caller chose the id, which is kept for ever
    sandbox_id    TEXT    NOT NULL REFERENCES sandboxes (id),
    lease_id      TEXT    NOT NULL,
    generation    INTEGER NOT NULL,
    sequence      INTEGER NOT NULL, -- of the event exec.started
    command       TEXT    NOT NULL, -- JSON list
    env_names     TEXT    NOT NULL, -- JSON list
    cwd           TEXT    NOT NULL,
    run_as        TEXT    NOT NULL,
    timeout       INTEGER NOT NULL, -- microseconds
    detached      INTEGER NOT NULL,
    -- The session that it is run in, '' for none; 1: it is a line of its shell; and who gave it.
    session_id    TEXT    NOT NULL DEFAULT '',
    shell         INTEGER NOT NULL DEFAULT 0,
    source        TEXT    NOT NULL DEFAULT '',
    state         TEXT    NOT NULL CHECK (state IN ('running', 'finished', 'failed', 'cancelled')),
    started_at    INTEGER NOT NULL,
    finished_at   INTEGER NOT NULL DEFAULT 0,
    cancel_at     INTEGER NOT NULL DEFAULT 0, -- when its end was requested
    exit_code     INTEGER NOT NULL DEFAULT 0,
    timed_out     INTEGER NOT NULL DEFAULT 0,
    oom_killed    INTEGER NOT NULL DEFAULT 0,
    error         TEXT    NOT NULL DEFAULT '',
    -- What it wrote in bytes; how much of that is kept; and the latter itself, if it is little. Otherwise it is an
    -- object (ledger.Exec.OutputObject).
    stdout_bytes  INTEGER NOT NULL DEFAULT 0,
    stdout_kept   INTEGER NOT NULL DEFAULT 0,
    stdout_inline BLOB,
    stderr_bytes  INTEGER NOT NULL DEFAULT 0,
    stderr_kept   INTEGER NOT NULL DEFAULT 0,
    stderr_inline BLOB,
    -- Who follows it, and until when that is believed.
    holder        TEXT    NOT NULL DEFAULT '',
    held_until    INTEGER NOT NULL DEFAULT 0,
    dropped_at    INTEGER NOT NULL DEFAULT 0 -- when its output was dropped
);
INSERT INTO execs_by_rowid SELECT * FROM execs ORDER BY started_at;
DROP TABLE execs;
ALTER TABLE execs_by_rowid RENAME TO execs;
CREATE INDEX execs_lease ON execs (lease_id, generation, sequence);
CREATE INDEX execs_sandbox ON execs (sandbox_id);
CREATE INDEX execs_running ON execs (held_until) WHERE state = 'running';
CREATE UNIQUE INDEX execs_in_session ON execs (sandbox_id, session_id) WHERE state = 'running' AND session_id <> '';

CREATE TABLE deliveries_by_rowid (
    id             TEXT    NOT NULL PRIMARY KEY, -- the sender's id of the message
    received_at    INTEGER NOT NULL,
    source         TEXT    NOT NULL,
    body           BLOB    NOT NULL,
    type           TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    agent_did      TEXT    NOT NULL,
    generation     INTEGER NOT NULL,
    occurred_at    INTEGER NOT NULL,
    status         TEXT    NOT NULL CHECK (status IN ('applied', 'stale', 'unmatched')),
    matched        INTEGER NOT NULL,
    -- The condition that leases end on and that the sender of an unmatched one probably meant, or ''.
    did_you_mean   TEXT    NOT NULL DEFAULT ''
);
INSERT INTO deliveries_by_rowid SELECT * FROM deliveries ORDER BY received_at;
DROP TABLE deliveries;
ALTER TABLE deliveries_by_rowid RENAME TO deliveries;
CREATE INDEX deliveries_received ON deliveries (received_at);

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
