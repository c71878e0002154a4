-- +goose Up
-- +goose StatementBegin
-- A program without LLM routes would put their keys into sandboxes, and drop the routes of an environment that it
-- changes.
UPDATE ledgers SET min_reader = 8;

-- The LLM routes from which a sandbox's variables were made, as JSON.
ALTER TABLE sandboxes ADD COLUMN llm TEXT NOT NULL DEFAULT '{}';

-- Model calls. The cost of a running call is the reserved amount.
CREATE TABLE llm_calls (
    id             TEXT COLLATE "C" PRIMARY KEY,
    environment_id TEXT COLLATE "C" NOT NULL,
    lease_id       TEXT COLLATE "C" NOT NULL,
    generation     BIGINT NOT NULL,
    sandbox_id     TEXT COLLATE "C" NOT NULL,
    agent_did      TEXT COLLATE "C" NOT NULL,
    route          TEXT COLLATE "C" NOT NULL,
    model          TEXT COLLATE "C" NOT NULL,
    started_at     BIGINT NOT NULL,
    ended_at       BIGINT NOT NULL,
    outcome        TEXT COLLATE "C" NOT NULL,
    status         BIGINT NOT NULL,
    input          BIGINT NOT NULL,
    cached_input   BIGINT NOT NULL,
    cache_write    BIGINT NOT NULL,
    output         BIGINT NOT NULL,
    cost           BIGINT NOT NULL,
    unknown        BIGINT NOT NULL -- 1: the upstream did not tell what it used
);
CREATE INDEX llm_calls_sandbox ON llm_calls (sandbox_id, started_at);
CREATE INDEX llm_calls_environment ON llm_calls (environment_id, started_at);
CREATE INDEX llm_calls_running ON llm_calls (environment_id) WHERE outcome = 'running';

-- Sums of ended calls by the UTC day on which they began.
CREATE TABLE llm_days (
    month          TEXT COLLATE "C" NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    lease_id       TEXT COLLATE "C" NOT NULL,
    day            TEXT COLLATE "C" NOT NULL,
    route          TEXT COLLATE "C" NOT NULL,
    model          TEXT COLLATE "C" NOT NULL,
    agent_did      TEXT COLLATE "C" NOT NULL,
    calls          BIGINT NOT NULL,
    input          BIGINT NOT NULL,
    cached_input   BIGINT NOT NULL,
    cache_write    BIGINT NOT NULL,
    output         BIGINT NOT NULL,
    cost           BIGINT NOT NULL,
    unknown_calls  BIGINT NOT NULL,
    unknown_cost   BIGINT NOT NULL,
    PRIMARY KEY (month, environment_id, lease_id, day, route, model)
);
CREATE TABLE llm_months (
    environment_id TEXT COLLATE "C" NOT NULL,
    month          TEXT COLLATE "C" NOT NULL,
    route          TEXT COLLATE "C" NOT NULL,
    calls          BIGINT NOT NULL,
    tokens         BIGINT NOT NULL,
    cost           BIGINT NOT NULL,
    PRIMARY KEY (environment_id, month, route)
);

-- How far the journal of an environment's gateway is recorded.
CREATE TABLE llm_cursors (
    instance       TEXT COLLATE "C" NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    run            BIGINT NOT NULL,
    line           BIGINT NOT NULL,
    PRIMARY KEY (instance, environment_id)
);
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
