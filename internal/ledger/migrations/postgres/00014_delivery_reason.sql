-- +goose Up
-- Why a delivery that is not applied ended nothing, or ''.
ALTER TABLE deliveries ADD COLUMN reason TEXT NOT NULL DEFAULT '';

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
