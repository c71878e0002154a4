-- +goose Up
-- +goose StatementBegin
-- A program without these sums would count usage and leave them as they are.
UPDATE ledgers SET min_reader = 6;

-- The gross cost of each environment's ended usage of a month, in nano-US-dollars: the sum of its cost_days.
CREATE TABLE cost_months (
    environment_id TEXT COLLATE "C" NOT NULL,
    month          TEXT COLLATE "C" NOT NULL, -- 2006-01
    cost           BIGINT NOT NULL,
    PRIMARY KEY (environment_id, month)
);
INSERT INTO cost_months (environment_id, month, cost) SELECT environment_id, month, CAST(SUM(cost) AS BIGINT) FROM cost_days GROUP BY environment_id, month;
DROP INDEX cost_days_environment;

-- The gross cost of each sandbox's ended usage, in nano-US-dollars: the sum of its periods whose rolled_at is above 0.
CREATE TABLE sandbox_costs (
    sandbox_id TEXT COLLATE "C" PRIMARY KEY REFERENCES sandboxes (id),
    cost       BIGINT NOT NULL
);
-- A negative rolled_at: cost_days counts the period, and sandbox_costs does not yet. The next roll-up adds it, because
-- SQL cannot price it.
UPDATE usage_periods SET rolled_at = -rolled_at WHERE rolled_at > 0;
CREATE INDEX usage_periods_unsettled ON usage_periods (sandbox_id, rolled_at) WHERE rolled_at <= 0;
-- The end of a sandbox's last usage is the last entry of this index.
DROP INDEX usage_periods_sandbox;
CREATE INDEX usage_periods_sandbox ON usage_periods (sandbox_id, ended_at);
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
