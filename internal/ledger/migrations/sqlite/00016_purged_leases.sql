-- +goose Up
-- Why the lease of a purged sandbox ended, and its use of models in JSON.
ALTER TABLE retired_sandboxes ADD COLUMN end_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE retired_sandboxes ADD COLUMN llm TEXT NOT NULL DEFAULT '{}';

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
