-- +goose Up
-- +goose StatementBegin
-- The witness on each backend instance: the last issued number, which only grows, and the last one known to be there.
CREATE TABLE witnesses (
    instance  TEXT    PRIMARY KEY,
    issued    INTEGER NOT NULL, -- the last number; each generation of a lease takes one
    witnessed INTEGER NOT NULL, -- the last number that the instance is known to have; 0: none
    found     INTEGER NOT NULL  -- a number that it has and this ledger never issued: the ledger is older; 0: none
) WITHOUT ROWID;
-- Every generation from now on is above it.
ALTER TABLE ledgers ADD COLUMN generation_floor INTEGER NOT NULL DEFAULT 0;
-- +goose StatementEnd
