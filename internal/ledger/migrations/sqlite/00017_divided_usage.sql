-- +goose Up
-- When the usage began that a period continues after a midnight, 0 if it begins with the period.
ALTER TABLE usage_periods ADD COLUMN continues_from INTEGER NOT NULL DEFAULT 0;

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
