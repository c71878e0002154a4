-- +goose Up
-- +goose StatementBegin
-- A program that does not know of batches would leave the rest of one when a lease of it cannot begin.
UPDATE ledgers SET min_reader = 7;

-- The batch that leases all of its agents or none, '' where the lease counts by itself.
ALTER TABLE sandboxes ADD COLUMN batch_id TEXT NOT NULL DEFAULT '';
CREATE INDEX sandboxes_batch ON sandboxes (batch_id) WHERE batch_id <> '';
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
