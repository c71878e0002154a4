-- +goose Up
-- One statement for all: goose takes longer to find the end of each than a database takes to run all of them.
-- +goose StatementBegin
-- Times are Unix microseconds in UTC, 0 meaning "not yet"; money is nano-US-dollars.

-- One row: which ledger this is, and which programs may read it.
CREATE TABLE ledgers (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    id         TEXT    NOT NULL,
    -- The oldest schema version whose program may still write here.
    min_reader INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE TABLE environments (
    id               TEXT    PRIMARY KEY,
    owner            TEXT    NOT NULL,
    type             TEXT    NOT NULL,
    backend          TEXT    NOT NULL,
    instance         TEXT    NOT NULL,
    spec             TEXT    NOT NULL, -- JSON of sandbox.EnvironmentSpec, defaults filled in
    status           TEXT    NOT NULL CHECK (status IN ('open', 'ended', 'deleting', 'destroyed')),
    epoch            INTEGER NOT NULL,
    ended_conditions TEXT    NOT NULL DEFAULT '[]', -- JSON list: conditions that closed it since opened_at
    ended_by         TEXT    NOT NULL DEFAULT '',
    ended_at         INTEGER NOT NULL DEFAULT 0,
    opened_at        INTEGER NOT NULL, -- a condition from before does not close it
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL
);

-- A lease names its current generation; its history is in sandboxes.
CREATE TABLE leases (
    id             TEXT    PRIMARY KEY, -- <agent_did>::<environment_id>
    agent_did      TEXT    NOT NULL,
    environment_id TEXT    NOT NULL REFERENCES environments (id),
    generation     INTEGER NOT NULL,
    sandbox_id     TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    UNIQUE (agent_did, environment_id)
);
CREATE INDEX leases_environment ON leases (environment_id);

-- One row per generation: what is wanted, what was seen, when to look again. Never replaced.
CREATE TABLE sandboxes (
    id                TEXT    PRIMARY KEY,
    lease_id          TEXT, -- NULL while it waits in a pool
    generation        INTEGER NOT NULL,
    environment_id    TEXT    NOT NULL REFERENCES environments (id),
    environment_type  TEXT    NOT NULL,
    agent_did         TEXT    NOT NULL,
    owner             TEXT    NOT NULL,
    backend           TEXT    NOT NULL,
    instance          TEXT    NOT NULL,
    image             TEXT    NOT NULL,
    memory_mb         INTEGER NOT NULL,
    cpu_millis        INTEGER NOT NULL,
    pids_limit        INTEGER NOT NULL,
    disk_mb           INTEGER NOT NULL,
    network           TEXT    NOT NULL,
    env               TEXT    NOT NULL,
    sleep_mode        TEXT    NOT NULL CHECK (sleep_mode IN ('pause', 'stop')),
    ttl               INTEGER NOT NULL, -- microseconds
    max_lifetime      INTEGER NOT NULL,
    sleep_after       INTEGER NOT NULL,
    expiry_conditions TEXT    NOT NULL,
    settings          TEXT    NOT NULL, -- JSON of sandbox.LeaseSettings
    desired           TEXT    NOT NULL CHECK (desired IN ('present', 'gone')),
    phase             TEXT    NOT NULL CHECK (phase IN ('pending', 'awake', 'asleep', 'gone')),
    leased_at         INTEGER NOT NULL,
    ready_at          INTEGER NOT NULL DEFAULT 0,
    last_activity     INTEGER NOT NULL,
    observed_at       INTEGER NOT NULL DEFAULT 0,
    ended_at          INTEGER NOT NULL DEFAULT 0,
    ended_by          TEXT    NOT NULL DEFAULT '' CHECK (ended_by IN ('', 'condition', 'ttl', 'max_lifetime', 'budget',
                          'release', 'failed', 'crashed', 'vanished', 'environment', 'admin')),
    end_reason        TEXT    NOT NULL DEFAULT '',
    destroyed_at      INTEGER NOT NULL DEFAULT 0,
    cpu_mark          INTEGER NOT NULL DEFAULT 0, -- last raw CPU reading, microseconds
    due_at            INTEGER NOT NULL,
    attempts          INTEGER NOT NULL DEFAULT 0,
    last_error        TEXT    NOT NULL DEFAULT '',
    claim             TEXT    NOT NULL DEFAULT '', -- who works on it now
    claimed_for       TEXT    NOT NULL DEFAULT '',
    claimed_until     INTEGER NOT NULL DEFAULT 0,
    last_sequence     INTEGER NOT NULL DEFAULT 0,
    UNIQUE (lease_id, generation),
    CHECK ((desired = 'gone') = (ended_by <> '')),
    CHECK (phase <> 'gone' OR desired = 'gone')
);
-- SQLite uses a partial index only where the query repeats its predicate.
CREATE INDEX sandboxes_due ON sandboxes (due_at) WHERE phase <> 'gone';
CREATE INDEX sandboxes_environment ON sandboxes (environment_id) WHERE phase <> 'gone';
CREATE INDEX sandboxes_instance ON sandboxes (instance) WHERE phase <> 'gone';

-- Uses of a sandbox that count as activity until they end: commands, open streams.
CREATE TABLE holds (
    sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id),
    holder     TEXT    NOT NULL,
    until      INTEGER NOT NULL, -- pushed forward while its process lives
    PRIMARY KEY (sandbox_id, holder)
) WITHOUT ROWID;

CREATE TABLE events (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    environment_id TEXT    NOT NULL,
    lease_id       TEXT    NOT NULL DEFAULT '',
    sandbox_id     TEXT    NOT NULL DEFAULT '',
    generation     INTEGER NOT NULL DEFAULT 0,
    sequence       INTEGER NOT NULL DEFAULT 0, -- per sandbox, from 1, without gaps
    type           TEXT    NOT NULL,
    at             INTEGER NOT NULL,
    data           TEXT    NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX events_sequence ON events (sandbox_id, sequence) WHERE sandbox_id <> '';
CREATE INDEX events_environment ON events (environment_id, id);

CREATE TABLE deliveries (
    id             TEXT    PRIMARY KEY, -- the sender's id of the message
    received_at    INTEGER NOT NULL,
    source         TEXT    NOT NULL,
    body           BLOB    NOT NULL,
    type           TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    agent_did      TEXT    NOT NULL,
    generation     INTEGER NOT NULL,
    occurred_at    INTEGER NOT NULL,
    status         TEXT    NOT NULL CHECK (status IN ('applied', 'stale', 'unmatched')),
    matched        INTEGER NOT NULL
) WITHOUT ROWID;

-- Prices as they were when a usage period began, so that later prices do not change earlier costs.
CREATE TABLE price_books (
    id       TEXT    PRIMARY KEY, -- SHA-256 of body
    backend  TEXT    NOT NULL,
    body     TEXT    NOT NULL, -- JSON of sandbox.PriceBook
    added_at INTEGER NOT NULL
);

CREATE TABLE usage_periods (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    sandbox_id     TEXT    NOT NULL REFERENCES sandboxes (id),
    lease_id       TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    agent_did      TEXT    NOT NULL,
    backend        TEXT    NOT NULL,
    price_book_id  TEXT    NOT NULL REFERENCES price_books (id),
    memory_mb      INTEGER NOT NULL,
    cpu_millis     INTEGER NOT NULL,
    disk_mb        INTEGER NOT NULL,
    state          TEXT    NOT NULL CHECK (state IN ('awake', 'asleep')),
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER NOT NULL DEFAULT 0, -- 0 while open
    cpu            INTEGER NOT NULL DEFAULT 0, -- CPU time used in it, microseconds
    CHECK (ended_at = 0 OR ended_at >= started_at)
);
CREATE UNIQUE INDEX usage_periods_open ON usage_periods (sandbox_id) WHERE ended_at = 0;
CREATE INDEX usage_periods_sandbox ON usage_periods (sandbox_id);
CREATE INDEX usage_periods_environment ON usage_periods (environment_id, started_at);

CREATE TABLE drift_findings (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    kind           TEXT    NOT NULL CHECK (kind IN ('vanished', 'stopped', 'out_of_memory', 'changed', 'orphan')),
    sandbox_id     TEXT    NOT NULL,
    lease_id       TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    instance       TEXT    NOT NULL,
    field          TEXT    NOT NULL DEFAULT '',
    expected       TEXT    NOT NULL DEFAULT '',
    observed       TEXT    NOT NULL DEFAULT '',
    first_seen_at  INTEGER NOT NULL,
    last_seen_at   INTEGER NOT NULL,
    looks          INTEGER NOT NULL DEFAULT 1,
    resolved_at    INTEGER NOT NULL DEFAULT 0, -- 0 while open
    resolution     TEXT    NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX drift_findings_open ON drift_findings (sandbox_id, kind, field) WHERE resolved_at = 0;
CREATE INDEX drift_findings_environment ON drift_findings (environment_id);
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
