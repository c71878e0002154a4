-- +goose Up
-- +goose StatementBegin
-- One request at a time makes, changes or removes what an environment has on its backend: the one whose claim is here.
ALTER TABLE environments ADD COLUMN claim TEXT NOT NULL DEFAULT '';
ALTER TABLE environments ADD COLUMN claimed_until BIGINT NOT NULL DEFAULT 0;
-- Since when it is being made for the first time, 0 once it was.
ALTER TABLE environments ADD COLUMN unmade_since BIGINT NOT NULL DEFAULT 0;
-- +goose StatementEnd
