-- +goose Up
-- +goose StatementBegin
-- A program without LLM routes would put their keys into sandboxes, and drop the routes of an environment that it
-- changes.
UPDATE ledgers SET min_reader = 8;

-- The LLM routes from which a sandbox's variables were made, as JSON.
ALTER TABLE sandboxes ADD COLUMN llm TEXT NOT NULL DEFAULT '{}';

-- Model calls. The cost of a running call is the reserved amount.
CREATE TABLE llm_calls (
    id             TEXT PRIMARY KEY,
    environment_id TEXT NOT NULL,
    lease_id       TEXT NOT NULL,
    generation     INTEGER NOT NULL,
    sandbox_id     TEXT NOT NULL,
    agent_did      TEXT NOT NULL,
    route          TEXT NOT NULL,
    model          TEXT NOT NULL,
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER NOT NULL,
    outcome        TEXT NOT NULL,
    status         INTEGER NOT NULL,
    input          INTEGER NOT NULL,
    cached_input   INTEGER NOT NULL,
    cache_write    INTEGER NOT NULL,
    output         INTEGER NOT NULL,
    cost           INTEGER NOT NULL,
    unknown        INTEGER NOT NULL -- 1: the upstream did not tell what it used
);
CREATE INDEX llm_calls_sandbox ON llm_calls (sandbox_id, started_at);
CREATE INDEX llm_calls_environment ON llm_calls (environment_id, started_at);
CREATE INDEX llm_calls_running ON llm_calls (environment_id) WHERE outcome = 'running';

-- Sums of ended calls by the UTC day on which they began.
CREATE TABLE llm_days (
    month          TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    lease_id       TEXT NOT NULL,
    day            TEXT NOT NULL,
    route          TEXT NOT NULL,
    model          TEXT NOT NULL,
    agent_did      TEXT NOT NULL,
    calls          INTEGER NOT NULL,
    input          INTEGER NOT NULL,
    cached_input   INTEGER NOT NULL,
    cache_write    INTEGER NOT NULL,
    output         INTEGER NOT NULL,
    cost           INTEGER NOT NULL,
    unknown_calls  INTEGER NOT NULL,
    unknown_cost   INTEGER NOT NULL,
    PRIMARY KEY (month, environment_id, lease_id, day, route, model)
) WITHOUT ROWID;
CREATE TABLE llm_months (
    environment_id TEXT NOT NULL,
    month          TEXT NOT NULL,
    route          TEXT NOT NULL,
    calls          INTEGER NOT NULL,
    tokens         INTEGER NOT NULL,
    cost           INTEGER NOT NULL,
    PRIMARY KEY (environment_id, month, route)
) WITHOUT ROWID;

-- How far the journal of an environment's gateway is recorded.
CREATE TABLE llm_cursors (
    instance       TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    run            INTEGER NOT NULL,
    line           INTEGER NOT NULL,
    PRIMARY KEY (instance, environment_id)
) WITHOUT ROWID;
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
