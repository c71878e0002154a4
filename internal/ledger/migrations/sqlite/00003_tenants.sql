-- +goose Up
-- One statement for all: goose takes longer to find the end of each than a database takes to run all of them.
-- +goose StatementBegin
-- Limits of tenants: whose agents share a state, ceilings of tokens, and how much output is kept.

-- A program of schema 2 would share the states of agents between all tokens, and not count kept output.
UPDATE ledgers SET min_reader = 3;

-- Whose leases share the states of agents: JSON list of patterns, sandbox.StateNamespace; NULL: the operator's.
ALTER TABLE sandboxes ADD COLUMN state_namespace TEXT;
-- The key of the state that it begins with if its own key has none; '' for none.
ALTER TABLE sandboxes ADD COLUMN state_source TEXT NOT NULL DEFAULT '';

-- An event says which states all tokens have shared until now: they belong to the operator. Its data is
-- sandbox.SnapshotsKept, with at most 100 keys.
INSERT INTO events (environment_id, type, at, data)
    SELECT '', 'ledger.states_kept', CAST(unixepoch('subsec') * 1000000 AS INTEGER),
        json_object('states', kept, 'keys', json((SELECT json_group_array(key)
            FROM (SELECT key FROM saved_states WHERE key = agent_did ORDER BY key LIMIT 100))))
    FROM (SELECT count(*) AS kept FROM saved_states WHERE key = agent_did) AS shared WHERE kept > 0;

-- The ceiling of a token with environments: JSON of sandbox.Ceiling.
ALTER TABLE tokens ADD COLUMN ceiling TEXT NOT NULL DEFAULT '{}';

-- Since when the output of a command, or the recording of a session, is no longer kept; 0 while it is.
ALTER TABLE execs ADD COLUMN dropped_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN dropped_at INTEGER NOT NULL DEFAULT 0;

-- The kept output of each ended command, and each session's recording. The oldest is dropped first.
CREATE TABLE kept_outputs (
    sandbox_id     TEXT NOT NULL REFERENCES sandboxes (id),
    kind           TEXT NOT NULL CHECK (kind IN ('exec', 'session')),
    id             TEXT NOT NULL, -- of the command or the session
    lease_id       TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    -- When it was written last.
    kept_at        INTEGER NOT NULL,
    bytes          INTEGER NOT NULL,
    PRIMARY KEY (sandbox_id, kind, id)
) WITHOUT ROWID;
CREATE INDEX kept_outputs_lease ON kept_outputs (lease_id, kept_at);
CREATE INDEX kept_outputs_environment ON kept_outputs (environment_id, kept_at);
CREATE INDEX kept_outputs_oldest ON kept_outputs (kept_at);

-- Their sums, for each lease and environment that has any, and in total ('ledger', ''), including dropped output.
CREATE TABLE kept_sums (
    scope           TEXT NOT NULL CHECK (scope IN ('lease', 'environment', 'ledger')),
    id              TEXT NOT NULL,
    bytes           INTEGER NOT NULL,
    records         INTEGER NOT NULL,
    dropped_bytes   INTEGER NOT NULL DEFAULT 0,
    dropped_records INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, id)
) WITHOUT ROWID;
CREATE INDEX kept_sums_largest ON kept_sums (scope, bytes);

INSERT INTO kept_outputs (sandbox_id, kind, id, lease_id, environment_id, kept_at, bytes)
    SELECT x.sandbox_id, 'exec', x.id, x.lease_id, s.environment_id, x.finished_at, x.stdout_kept + x.stderr_kept
    FROM execs x JOIN sandboxes s ON s.id = x.sandbox_id WHERE x.state <> 'running' AND x.stdout_kept + x.stderr_kept > 0;
INSERT INTO kept_outputs (sandbox_id, kind, id, lease_id, environment_id, kept_at, bytes)
    SELECT x.sandbox_id, 'session', x.id, x.lease_id, s.environment_id, CASE WHEN x.closed_at = 0 THEN x.created_at ELSE x.closed_at END, x.recorded
    FROM sessions x JOIN sandboxes s ON s.id = x.sandbox_id WHERE x.recorded > 0;
INSERT INTO kept_sums (scope, id, bytes, records) SELECT 'lease', lease_id, sum(bytes), count(*) FROM kept_outputs GROUP BY lease_id;
INSERT INTO kept_sums (scope, id, bytes, records) SELECT 'environment', environment_id, sum(bytes), count(*) FROM kept_outputs GROUP BY environment_id;
INSERT INTO kept_sums (scope, id, bytes, records) SELECT 'ledger', '', sum(bytes), count(*) FROM kept_outputs HAVING count(*) > 0;
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
