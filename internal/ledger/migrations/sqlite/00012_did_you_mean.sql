-- +goose Up
-- The condition that leases end on and that the sender of an unmatched one probably meant, or ''.
ALTER TABLE deliveries ADD COLUMN did_you_mean TEXT NOT NULL DEFAULT '';

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
