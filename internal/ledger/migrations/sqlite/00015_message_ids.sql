-- +goose Up
-- The id of a message is unique among the messages for its environment: game servers that do not know each other choose
-- their ids.
CREATE TABLE deliveries_of_environments (
    id             TEXT    NOT NULL, -- the sender's id of the message
    received_at    INTEGER NOT NULL,
    source         TEXT    NOT NULL,
    body           BLOB    NOT NULL,
    type           TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    agent_did      TEXT    NOT NULL,
    generation     INTEGER NOT NULL,
    occurred_at    INTEGER NOT NULL,
    status         TEXT    NOT NULL CHECK (status IN ('applied', 'stale', 'unmatched')),
    matched        INTEGER NOT NULL,
    -- The condition that leases end on and that the sender of an unmatched one probably meant, or ''.
    did_you_mean   TEXT    NOT NULL DEFAULT '',
    -- Why a delivery that is not applied ended nothing, or ''.
    reason         TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (id, environment_id)
);
INSERT INTO deliveries_of_environments SELECT * FROM deliveries ORDER BY received_at;
DROP TABLE deliveries;
ALTER TABLE deliveries_of_environments RENAME TO deliveries;
CREATE INDEX deliveries_received ON deliveries (received_at);

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
