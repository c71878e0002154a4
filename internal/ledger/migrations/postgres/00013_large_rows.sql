-- +goose Up
-- PostgreSQL keeps large rows apart from the keys of its indexes. Only SQLite's tables change.
SELECT 1;

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
