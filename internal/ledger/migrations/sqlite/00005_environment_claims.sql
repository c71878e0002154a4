-- +goose Up
-- +goose StatementBegin
-- One request at a time changes an environment's resources on its backend: the holder of this claim.
ALTER TABLE environments ADD COLUMN claim TEXT NOT NULL DEFAULT '';
ALTER TABLE environments ADD COLUMN claimed_until INTEGER NOT NULL DEFAULT 0;
-- Since when it is being created for the first time, 0 once it was created.
ALTER TABLE environments ADD COLUMN unmade_since INTEGER NOT NULL DEFAULT 0;
-- +goose StatementEnd
