-- +goose Up
-- The id of a message is unique among the messages for its environment: game servers that do not know each other choose
-- their ids.
ALTER TABLE deliveries DROP CONSTRAINT deliveries_pkey, ADD PRIMARY KEY (id, environment_id);

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
