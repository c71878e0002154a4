-- +goose Up
-- +goose StatementBegin
-- A program without batches would leave the rest of a batch when one of its leases cannot begin.
UPDATE ledgers SET min_reader = 7;

-- The all-or-none batch of the lease, '' for a single lease.
ALTER TABLE sandboxes ADD COLUMN batch_id TEXT NOT NULL DEFAULT '';
CREATE INDEX sandboxes_batch ON sandboxes (batch_id) WHERE batch_id <> '';
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
