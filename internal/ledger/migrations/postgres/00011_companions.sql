-- +goose Up
-- +goose StatementBegin
-- A program without companions would drop those of an environment that it changes, and leave them running.
UPDATE ledgers SET min_reader = 11;

-- The companions of a sandbox as JSON, their limits together, and their states as JSON.
ALTER TABLE sandboxes ADD COLUMN companions TEXT;
ALTER TABLE sandboxes ADD COLUMN companion_memory_mb BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN companion_cpu_millis BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN companion_disk_mb BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN companion_states TEXT;
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
