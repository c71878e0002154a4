-- +goose Up
-- One statement for all: goose takes longer to find the end of each than a database takes to run all of them.
-- +goose StatementBegin
-- Warm pools, costs by day and the clock.

-- A program of schema 1 would wake a pool's sandbox without assigning it to its lease.
UPDATE ledgers SET min_reader = 2;
-- Earlier usage is kept by UTC day only; its periods are gone.
ALTER TABLE ledgers ADD COLUMN detail_since INTEGER NOT NULL DEFAULT 0;
-- The sum of all steps of the clock so far, in microseconds, and the latest recorded time.
ALTER TABLE ledgers ADD COLUMN clock_steps INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledgers ADD COLUMN clock_seen_at INTEGER NOT NULL DEFAULT 0;
-- How often a health check has written here.
ALTER TABLE ledgers ADD COLUMN touched INTEGER NOT NULL DEFAULT 0;

-- The difference of the clock and the time since boot, for each boot of a host. A change of it is a step.
CREATE TABLE clocks (
    boot_id TEXT    PRIMARY KEY,
    ahead   INTEGER NOT NULL, -- microseconds
    steps   INTEGER NOT NULL, -- ledgers.clock_steps at that time
    seen_at INTEGER NOT NULL
) WITHOUT ROWID;

ALTER TABLE environments ADD COLUMN pool_failures INTEGER NOT NULL DEFAULT 0; -- in a row
ALTER TABLE environments ADD COLUMN pool_error TEXT NOT NULL DEFAULT '';
ALTER TABLE environments ADD COLUMN pool_due_at INTEGER NOT NULL DEFAULT 0; -- no pool sandbox is made before

-- The label under which its backend knows an adopted sandbox; '' is this ledger's own.
ALTER TABLE sandboxes ADD COLUMN ledger_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN pooled_at INTEGER NOT NULL DEFAULT 0; -- made for a pool then
-- The deadline that its backend got at its creation; 0 is leased_at + max_lifetime.
ALTER TABLE sandboxes ADD COLUMN hard_deadline INTEGER NOT NULL DEFAULT 0;
-- When to look again: no process works on it before its claim expires.
ALTER TABLE sandboxes ADD COLUMN wake_at INTEGER GENERATED ALWAYS AS (max(due_at, claimed_until)) VIRTUAL;
-- When an unused lease ends.
ALTER TABLE sandboxes ADD COLUMN expires_at INTEGER GENERATED ALWAYS AS (min(last_activity + ttl, leased_at + max_lifetime)) VIRTUAL;
DROP INDEX sandboxes_due;
CREATE INDEX sandboxes_wake ON sandboxes (instance, wake_at) WHERE phase <> 'gone';
-- A resync reads an instance's sandboxes in pages.
DROP INDEX sandboxes_instance;
CREATE INDEX sandboxes_instance ON sandboxes (instance, id) WHERE phase <> 'gone';
CREATE INDEX sandboxes_pool ON sandboxes (environment_id) WHERE phase <> 'gone' AND lease_id IS NULL;

-- Its confinement: JSON of sandbox.Confinement.
ALTER TABLE sandboxes ADD COLUMN confinement TEXT NOT NULL DEFAULT '{}';
-- Its access to the service's machine: JSON of sandbox.HostAccess.
ALTER TABLE sandboxes ADD COLUMN host_access TEXT NOT NULL DEFAULT '{}';

-- The hosts that it may reach, as in its hosts file: JSON of sandbox.Egress.
ALTER TABLE sandboxes ADD COLUMN egress TEXT NOT NULL DEFAULT '{}';

-- Secrets of environments, encrypted under a key that is not in the ledger.
CREATE TABLE environment_secrets (
    environment_id TEXT    NOT NULL REFERENCES environments (id),
    name           TEXT    NOT NULL,
    sealed         BLOB    NOT NULL,
    updated_at     INTEGER NOT NULL,
    PRIMARY KEY (environment_id, name)
) WITHOUT ROWID;
ALTER TABLE sandboxes ADD COLUMN secrets_owed INTEGER NOT NULL DEFAULT 0; -- when it began to lack some; 0: it has all

-- Time of the oldest use or limits not yet reported to its backend, 0: none; time of the last report.
ALTER TABLE sandboxes ADD COLUMN renewal_owed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN renewed_at INTEGER NOT NULL DEFAULT 0;

-- The state that follows from its events, its time, why it sleeps, why it failed.
ALTER TABLE sandboxes ADD COLUMN stands TEXT NOT NULL DEFAULT 'pending' CHECK (stands IN ('pending', 'ready', 'asleep', 'stopped', 'failed', 'deleting', 'deleted'));
UPDATE sandboxes SET stands = CASE WHEN phase = 'gone' THEN 'deleted' WHEN desired = 'gone' THEN 'deleting' WHEN phase = 'pending' THEN 'pending'
    WHEN phase = 'awake' THEN 'ready' WHEN sleep_mode = 'stop' THEN 'stopped' ELSE 'asleep' END;
ALTER TABLE sandboxes ADD COLUMN changed_at INTEGER NOT NULL DEFAULT 0;
UPDATE sandboxes SET changed_at = max(leased_at, ready_at, ended_at, destroyed_at); -- as far as it is known
ALTER TABLE sandboxes ADD COLUMN stop_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN error_code TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN error_message TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN down_since INTEGER NOT NULL DEFAULT 0; -- not well since it stopped by itself; 0 when it is
ALTER TABLE sandboxes ADD COLUMN crashes INTEGER NOT NULL DEFAULT 0; -- how often it has stopped since
ALTER TABLE sandboxes ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0; -- the backend's number of the start that usage is counted from
UPDATE sandboxes SET error_code = 'sandbox_' || replace(ended_by, 'failed', 'creation_failed'), error_message = end_reason
    WHERE ended_by IN ('failed', 'crashed', 'vanished');

ALTER TABLE usage_periods ADD COLUMN instance TEXT NOT NULL DEFAULT '';
ALTER TABLE usage_periods ADD COLUMN rolled_at INTEGER NOT NULL DEFAULT 0; -- counted in cost_days since; 0 before
ALTER TABLE usage_periods ADD COLUMN generations INTEGER NOT NULL DEFAULT 0; -- 1: a generation's usage begins with it
UPDATE usage_periods SET instance = (SELECT instance FROM sandboxes WHERE sandboxes.id = usage_periods.sandbox_id),
    generations = NOT EXISTS (SELECT 1 FROM usage_periods AS earlier
        WHERE earlier.sandbox_id = usage_periods.sandbox_id AND earlier.id < usage_periods.id);
CREATE INDEX usage_periods_unrolled ON usage_periods (environment_id, ended_at) WHERE rolled_at = 0;
CREATE INDEX usage_periods_ended ON usage_periods (ended_at, started_at);

-- Ended usage, summed by UTC day and lease for ever. A pool's usage has no lease and no agent.
CREATE TABLE cost_days (
    month          TEXT    NOT NULL, -- 2006-01
    day            TEXT    NOT NULL, -- 2006-01-02
    environment_id TEXT    NOT NULL,
    lease_id       TEXT    NOT NULL,
    agent_did      TEXT    NOT NULL,
    backend        TEXT    NOT NULL,
    instance       TEXT    NOT NULL, -- the account
    generations    INTEGER NOT NULL, -- those whose usage began on the day
    awake          INTEGER NOT NULL, -- microseconds
    asleep         INTEGER NOT NULL,
    cpu            INTEGER NOT NULL,
    memory         INTEGER NOT NULL, -- MiB x milliseconds, awake
    disk           INTEGER NOT NULL, -- MB x milliseconds, awake
    -- Gross, in nano-US-dollars, by what it is for; and the same use at Cloudflare's list prices.
    cost_memory    INTEGER NOT NULL,
    cost_cpu       INTEGER NOT NULL,
    cost_disk      INTEGER NOT NULL,
    cost_asleep    INTEGER NOT NULL,
    shadow_memory  INTEGER NOT NULL,
    shadow_cpu     INTEGER NOT NULL,
    shadow_disk    INTEGER NOT NULL,
    shadow_asleep  INTEGER NOT NULL,
    cost           INTEGER GENERATED ALWAYS AS (cost_memory + cost_cpu + cost_disk + cost_asleep) VIRTUAL,
    -- A month's report sums the days of each lease in this order.
    PRIMARY KEY (month, environment_id, lease_id, instance, day)
) WITHOUT ROWID;
CREATE INDEX cost_days_environment ON cost_days (environment_id, day, cost);

-- The price book of the most recently begun usage of an account on a UTC day. Its plan applies.
CREATE TABLE account_days (
    instance      TEXT    NOT NULL,
    day           TEXT NOT NULL,
    backend       TEXT    NOT NULL,
    price_book_id TEXT NOT NULL REFERENCES price_books (id),
    begun_at      INTEGER NOT NULL,
    PRIMARY KEY (instance, day)
) WITHOUT ROWID;

-- Reached thresholds of budgets that have an event, each once for an amount and a month.
CREATE TABLE budget_thresholds (
    environment_id TEXT NOT NULL REFERENCES environments (id),
    month          TEXT NOT NULL, -- 2006-01
    monthly        INTEGER NOT NULL, -- the budget, nano-US-dollars
    percent        INTEGER NOT NULL,
    spent          INTEGER NOT NULL, -- when it was noticed
    reached_at     INTEGER NOT NULL,
    PRIMARY KEY (environment_id, month, monthly, percent)
) WITHOUT ROWID;

-- SQLite can change a CHECK only with a new table.
CREATE TABLE drift_findings_2 (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    kind           TEXT    NOT NULL CHECK (kind IN ('vanished', 'stopped', 'out_of_memory', 'changed', 'orphan', 'leftover', 'usage')),
    sandbox_id     TEXT    NOT NULL,
    lease_id       TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    instance       TEXT    NOT NULL,
    field          TEXT    NOT NULL DEFAULT '',
    expected       TEXT    NOT NULL DEFAULT '',
    observed       TEXT    NOT NULL DEFAULT '',
    first_seen_at  INTEGER NOT NULL,
    last_seen_at   INTEGER NOT NULL,
    looks          INTEGER NOT NULL DEFAULT 1,
    resolved_at    INTEGER NOT NULL DEFAULT 0, -- 0 while open
    resolution     TEXT    NOT NULL DEFAULT ''
);
INSERT INTO drift_findings_2 SELECT * FROM drift_findings;
DROP TABLE drift_findings;
ALTER TABLE drift_findings_2 RENAME TO drift_findings;
CREATE UNIQUE INDEX drift_findings_open ON drift_findings (instance, sandbox_id, kind, field) WHERE resolved_at = 0;
CREATE INDEX drift_findings_environment ON drift_findings (environment_id);

-- Retention. Sandboxes that were destroyed long enough ago are removed. These rows stay for ever, so that no id
-- is reused and a reader who asks for an old id learns its fate.
CREATE TABLE retired_sandboxes (
    id             TEXT    PRIMARY KEY,
    lease_id       TEXT    NOT NULL, -- '' when it was never leased
    generation     INTEGER NOT NULL,
    environment_id TEXT    NOT NULL,
    owner          TEXT    NOT NULL,
    ledger_id      TEXT    NOT NULL, -- as in sandboxes
    last_sequence  INTEGER NOT NULL,
    last_event_id  INTEGER NOT NULL, -- events.id of the last one
    leased_at      INTEGER NOT NULL,
    ended_at       INTEGER NOT NULL,
    ended_by       TEXT    NOT NULL,
    destroyed_at   INTEGER NOT NULL,
    retired_at     INTEGER NOT NULL,
    cost           INTEGER NOT NULL  -- nano-US-dollars
) WITHOUT ROWID;
CREATE INDEX retired_sandboxes_adopted ON retired_sandboxes (environment_id) WHERE ledger_id <> '';
-- Not all events up to this id are retained.
ALTER TABLE ledgers ADD COLUMN purged_event_id INTEGER NOT NULL DEFAULT 0;
-- Since when only the name of a destroyed environment is kept; 0 before.
ALTER TABLE environments ADD COLUMN retired_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX environments_destroyed ON environments (updated_at) WHERE status = 'destroyed' AND retired_at = 0;
CREATE INDEX sandboxes_gone ON sandboxes (destroyed_at) WHERE phase = 'gone';
CREATE INDEX events_of_environments ON events (at) WHERE sandbox_id = '';
CREATE INDEX deliveries_received ON deliveries (received_at);
CREATE INDEX drift_findings_resolved ON drift_findings (resolved_at) WHERE resolved_at <> 0;

-- State of /data.
ALTER TABLE sandboxes ADD COLUMN state_spec TEXT; -- JSON of sandbox.StateSpec; NULL: none is kept
ALTER TABLE sandboxes ADD COLUMN state_key TEXT NOT NULL DEFAULT ''; -- whose state it is
ALTER TABLE sandboxes ADD COLUMN state_role TEXT NOT NULL DEFAULT '' CHECK (state_role IN ('', 'waiting', 'holder', 'copy', 'done', 'lost'));
ALTER TABLE sandboxes ADD COLUMN state_restored TEXT; -- JSON of sandbox.SavedState
ALTER TABLE sandboxes ADD COLUMN state_changed_at INTEGER NOT NULL DEFAULT 0; -- the last known change
ALTER TABLE sandboxes ADD COLUMN state_saved_at INTEGER NOT NULL DEFAULT 0; -- as of then it is saved
ALTER TABLE sandboxes ADD COLUMN state_tried_at INTEGER NOT NULL DEFAULT 0; -- the last try to save it began
ALTER TABLE sandboxes ADD COLUMN state_failing_since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN state_error TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN state_error_code TEXT NOT NULL DEFAULT '';
-- Two sandboxes never save the state of one key.
CREATE UNIQUE INDEX sandboxes_state_holder ON sandboxes (state_key) WHERE state_role = 'holder';
CREATE INDEX sandboxes_state_waiting ON sandboxes (state_key) WHERE state_role = 'waiting';

-- The last published state of each key.
CREATE TABLE saved_states (
    key            TEXT    PRIMARY KEY,
    agent_did      TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    sandbox_id     TEXT    NOT NULL, -- who saved it
    generation     INTEGER NOT NULL,
    saved_at       INTEGER NOT NULL,
    object         TEXT    NOT NULL,
    sha256         TEXT    NOT NULL,
    bytes          INTEGER NOT NULL, -- as stored
    unpacked_bytes INTEGER NOT NULL,
    files          INTEGER NOT NULL,
    skipped        INTEGER NOT NULL
) WITHOUT ROWID;

-- Possible objects that no saved state names. Each is deleted at its time, unless it is published before.
CREATE TABLE doomed_objects (
    object    TEXT    PRIMARY KEY,
    delete_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX doomed_objects_due ON doomed_objects (delete_at);

-- How far the log of each environment's gateway is recorded as events.
CREATE TABLE egress_cursors (
    instance       TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    run            INTEGER NOT NULL,
    line           INTEGER NOT NULL,
    PRIMARY KEY (instance, environment_id)
) WITHOUT ROWID;

-- Commands. Their parameters have no values of variables, which may be secret.
CREATE TABLE execs (
    id            TEXT    PRIMARY KEY,
    named         INTEGER NOT NULL, -- 1: its caller chose the id, which is kept for ever
    sandbox_id    TEXT    NOT NULL REFERENCES sandboxes (id),
    lease_id      TEXT    NOT NULL,
    generation    INTEGER NOT NULL,
    sequence      INTEGER NOT NULL, -- of the event exec.started
    command       TEXT    NOT NULL, -- JSON list
    env_names     TEXT    NOT NULL, -- JSON list
    cwd           TEXT    NOT NULL,
    run_as        TEXT    NOT NULL,
    timeout       INTEGER NOT NULL, -- microseconds
    detached      INTEGER NOT NULL,
    -- The session that it is run in, '' for none; 1: it is a line of its shell; and who gave it.
    session_id    TEXT    NOT NULL DEFAULT '',
    shell         INTEGER NOT NULL DEFAULT 0,
    source        TEXT    NOT NULL DEFAULT '',
    state         TEXT    NOT NULL CHECK (state IN ('running', 'finished', 'failed', 'cancelled')),
    started_at    INTEGER NOT NULL,
    finished_at   INTEGER NOT NULL DEFAULT 0,
    cancel_at     INTEGER NOT NULL DEFAULT 0, -- when its end was requested
    exit_code     INTEGER NOT NULL DEFAULT 0,
    timed_out     INTEGER NOT NULL DEFAULT 0,
    oom_killed    INTEGER NOT NULL DEFAULT 0,
    error         TEXT    NOT NULL DEFAULT '',
    -- What it wrote in bytes; how much of that is kept; and the latter itself, where it is little: else
    -- it is an object (leasing.outputObject).
    stdout_bytes  INTEGER NOT NULL DEFAULT 0,
    stdout_kept   INTEGER NOT NULL DEFAULT 0,
    stdout_inline BLOB,
    stderr_bytes  INTEGER NOT NULL DEFAULT 0,
    stderr_kept   INTEGER NOT NULL DEFAULT 0,
    stderr_inline BLOB,
    -- Who follows it, and until when that is believed.
    holder        TEXT    NOT NULL DEFAULT '',
    held_until    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX execs_lease ON execs (lease_id, generation, sequence);
CREATE INDEX execs_sandbox ON execs (sandbox_id);
CREATE INDEX execs_running ON execs (held_until) WHERE state = 'running';
-- Ids that callers chose for commands that are no longer kept.
CREATE TABLE retired_execs (
    id TEXT PRIMARY KEY
) WITHOUT ROWID;

-- Commands that run once before a sandbox is ready: JSON list of sandbox.PostStart; NULL: none.
ALTER TABLE sandboxes ADD COLUMN post_start TEXT;

-- Until when a sandbox that failed after it was ready is kept for a post-mortem; 0 if it is not kept.
ALTER TABLE sandboxes ADD COLUMN kept_until INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sandboxes_kept ON sandboxes (ended_at) WHERE kept_until > 0;

-- Sessions: places in a sandbox that run commands one after the other. The values of their variables
-- are sealed, and are removed when a session is closed.
CREATE TABLE sessions (
    sandbox_id    TEXT NOT NULL REFERENCES sandboxes (id),
    id            TEXT NOT NULL,
    lease_id      TEXT NOT NULL,
    generation    INTEGER NOT NULL,
    asked         TEXT    NOT NULL, -- JSON: what it was made with
    env_names     TEXT    NOT NULL, -- JSON list
    sealed_env    BLOB,
    cwd           TEXT    NOT NULL,
    run_as        TEXT    NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('open', 'closed')),
    created_at    INTEGER NOT NULL,
    closed_at     INTEGER NOT NULL DEFAULT 0,
    last_sequence INTEGER NOT NULL DEFAULT 0,
    recorded      INTEGER NOT NULL DEFAULT 0, -- bytes, as sandbox.MaxSessionRecording counts them
    is_full       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (sandbox_id, id)
) WITHOUT ROWID;
CREATE INDEX sessions_lease ON sessions (lease_id, generation);
-- One command at a time runs in a session.
CREATE UNIQUE INDEX execs_in_session ON execs (sandbox_id, session_id) WHERE state = 'running' AND session_id <> '';
-- Input and output of sessions.
CREATE TABLE session_events (
    sandbox_id    TEXT NOT NULL,
    session_id    TEXT NOT NULL,
    sequence      INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    type          TEXT    NOT NULL CHECK (type IN ('input', 'output', 'error', 'system')),
    source        TEXT    NOT NULL CHECK (source IN ('user', 'agent', 'system')),
    exec_id       TEXT    NOT NULL,
    data          BLOB NOT NULL,
    PRIMARY KEY (sandbox_id, session_id, sequence)
);

-- Processes that run as long as their sandbox does.
CREATE TABLE processes (
    sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id),
    name       TEXT    NOT NULL,
    lease_id   TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    declared   INTEGER NOT NULL, -- 1: by its environment
    command    TEXT    NOT NULL, -- JSON list
    env_names  TEXT    NOT NULL, -- JSON list
    env        TEXT    NOT NULL, -- JSON object; empty once it starts no more
    cwd        TEXT    NOT NULL,
    run_as     TEXT    NOT NULL,
    restart    TEXT    NOT NULL CHECK (restart IN ('no', 'always')),
    state      TEXT    NOT NULL CHECK (state IN ('pending', 'running', 'exited', 'failed', 'killed', 'stopped')),
    run        TEXT    NOT NULL DEFAULT '', -- the backend's id of its latest start
    lost       INTEGER NOT NULL DEFAULT 0, -- 1: its sandbox was stopped; it is started again under that id
    starts     INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL DEFAULT 0,
    failures   INTEGER NOT NULL DEFAULT 0, -- starts in a row that did not last
    exited_at  INTEGER NOT NULL DEFAULT 0,
    exit_code  INTEGER NOT NULL DEFAULT 0,
    oom_killed INTEGER NOT NULL DEFAULT 0,
    error      TEXT    NOT NULL DEFAULT '',
    kill_at    INTEGER NOT NULL DEFAULT 0, -- when its end was requested
    due_at     INTEGER NOT NULL, -- when to start a pending one; until when its holder has one that runs
    holder     TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (sandbox_id, name)
) WITHOUT ROWID;
CREATE INDEX processes_live ON processes (due_at) WHERE state IN ('pending', 'running');

-- What awake sandboxes used, about once a minute, for a day.
CREATE TABLE usage_samples (
    sandbox_id   TEXT    NOT NULL REFERENCES sandboxes (id),
    at           INTEGER NOT NULL,
    cpu          INTEGER NOT NULL, -- microseconds since the sandbox last started
    memory_bytes INTEGER NOT NULL,
    pids         INTEGER NOT NULL,
    PRIMARY KEY (sandbox_id, at)
) WITHOUT ROWID;
CREATE INDEX usage_samples_at ON usage_samples (at);

-- The caller that requested the change, and its address; '' for the service itself.
ALTER TABLE events ADD COLUMN actor TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN address TEXT NOT NULL DEFAULT '';

-- When a backup was taken. The program that opens a backup records the time of the restore, and clears this.
ALTER TABLE ledgers ADD COLUMN backed_up_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledgers ADD COLUMN restored_at INTEGER NOT NULL DEFAULT 0;

-- Bearer tokens, without their text. Tokens that replace each other by rotation have one name.
CREATE TABLE tokens (
    id           TEXT    PRIMARY KEY,
    name         TEXT    NOT NULL,
    hash         BLOB   NOT NULL UNIQUE, -- SHA-256 of the text, 256 random bits
    scopes       TEXT    NOT NULL, -- JSON list
    environments TEXT    NOT NULL, -- JSON list of patterns
    created_at   INTEGER NOT NULL,
    created_by   TEXT    NOT NULL,
    expires_at   INTEGER NOT NULL DEFAULT 0, -- 0: never
    last_used_at INTEGER NOT NULL DEFAULT 0,
    revoked_at   INTEGER NOT NULL DEFAULT 0,
    revoked_by   TEXT    NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX tokens_name ON tokens (name);

-- Browsers that logged in with a token. The secret that a browser keeps is not stored here.
CREATE TABLE logins (
    hash       BLOB    PRIMARY KEY, -- SHA-256 of the log-in's id, 256 random bits
    token_hash BLOB    NOT NULL, -- SHA-256 of the token's text
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX logins_expires ON logins (expires_at);
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
