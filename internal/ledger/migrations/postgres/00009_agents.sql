-- +goose Up
-- +goose StatementBegin
-- A program without agents would drop the endpoints of an environment that it changes.
UPDATE ledgers SET min_reader = 9;

-- The port on which a process serves HTTP, 0 if it serves none, and its description.
ALTER TABLE processes ADD COLUMN port BIGINT NOT NULL DEFAULT 0;
ALTER TABLE processes ADD COLUMN description TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX processes_agents ON processes (lease_id, name) WHERE port <> 0;

-- What an agent works for when it calls a model, as it says itself.
ALTER TABLE llm_calls ADD COLUMN session TEXT COLLATE "C" NOT NULL DEFAULT '';
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
