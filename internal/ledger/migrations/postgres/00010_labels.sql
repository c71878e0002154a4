-- +goose Up
-- +goose StatementBegin
-- A program without labels would drop those of a lease that it renews.
UPDATE ledgers SET min_reader = 10;

-- JSON object: the labels of the lease and of its environment.
ALTER TABLE sandboxes ADD COLUMN labels TEXT COLLATE "C" NOT NULL DEFAULT '{}';
ALTER TABLE retired_sandboxes ADD COLUMN labels TEXT COLLATE "C" NOT NULL DEFAULT '{}';
-- In microseconds: the time limit of commands that set none. 0 means 2 minutes.
ALTER TABLE sandboxes ADD COLUMN command_timeout BIGINT NOT NULL DEFAULT 0;
UPDATE sandboxes SET labels = COALESCE(
    (SELECT (spec::jsonb -> 'labels')::text FROM environments WHERE environments.id = sandboxes.environment_id), '{}');
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
