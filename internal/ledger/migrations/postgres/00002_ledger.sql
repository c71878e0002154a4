-- +goose Up
-- One statement for all: goose takes longer to find the end of each than a database takes to run all of them.
-- +goose StatementBegin
-- PostgreSQL begins with schema 2, which SQLite has after its migrations 1 and 2. Columns that sort or
-- select ranges of rows are compared as bytes, as in SQLite.

-- Times are Unix microseconds in UTC, 0 meaning "not yet"; money is nano-US-dollars.

-- One row: which ledger this is, and which programs may read it.
CREATE TABLE ledgers (
    one        BIGINT PRIMARY KEY CHECK (one = 1),
    id         TEXT COLLATE "C" NOT NULL,
    -- The oldest schema version whose program may still write here.
    min_reader BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    -- Usage before this moment is kept by UTC day only; its periods are gone.
    detail_since    BIGINT NOT NULL DEFAULT 0,
    -- The sum of all steps of the clock so far, microseconds, and the latest moment that was noted.
    clock_steps     BIGINT NOT NULL DEFAULT 0,
    clock_seen_at   BIGINT NOT NULL DEFAULT 0,
    -- How often a health check has written here.
    touched         BIGINT NOT NULL DEFAULT 0
);

-- The difference of the clock and the time since boot, for each boot of a host. A change of it is a step.
CREATE TABLE clocks (
    boot_id TEXT COLLATE "C" PRIMARY KEY,
    ahead   BIGINT NOT NULL, -- microseconds
    steps   BIGINT NOT NULL, -- ledgers.clock_steps at that time
    seen_at BIGINT NOT NULL
);

CREATE TABLE environments (
    id               TEXT COLLATE "C" PRIMARY KEY,
    owner            TEXT    NOT NULL,
    type             TEXT    NOT NULL,
    backend          TEXT    NOT NULL,
    instance         TEXT    NOT NULL,
    spec             TEXT    NOT NULL, -- JSON of sandbox.EnvironmentSpec, defaults filled in
    status           TEXT    NOT NULL CHECK (status IN ('open', 'ended', 'deleting', 'destroyed')),
    epoch            BIGINT NOT NULL,
    ended_conditions TEXT    NOT NULL DEFAULT '[]', -- JSON list: conditions that closed it since opened_at
    ended_by         TEXT    NOT NULL DEFAULT '',
    ended_at         BIGINT NOT NULL DEFAULT 0,
    opened_at        BIGINT NOT NULL, -- a condition from before does not close it
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    pool_failures    BIGINT NOT NULL DEFAULT 0, -- in a row
    pool_error       TEXT    NOT NULL DEFAULT '',
    pool_due_at      BIGINT NOT NULL DEFAULT 0 -- no pool sandbox is made before
);

-- Secrets of environments, encrypted under a key that is not in the ledger.
CREATE TABLE environment_secrets (
    environment_id TEXT COLLATE "C" NOT NULL REFERENCES environments (id),
    name           TEXT COLLATE "C" NOT NULL,
    sealed         BYTEA  NOT NULL,
    updated_at     BIGINT NOT NULL,
    PRIMARY KEY (environment_id, name)
);

-- A lease names its current generation; its history is in sandboxes.
CREATE TABLE leases (
    id             TEXT COLLATE "C" PRIMARY KEY, -- <agent_did>::<environment_id>
    agent_did      TEXT COLLATE "C" NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL REFERENCES environments (id),
    generation     BIGINT NOT NULL,
    sandbox_id     TEXT COLLATE "C" NOT NULL,
    created_at     BIGINT NOT NULL,
    UNIQUE (agent_did, environment_id)
);
CREATE INDEX leases_environment ON leases (environment_id);

-- One row per generation: what is wanted, what was seen, when to look again. Never replaced.
CREATE TABLE sandboxes (
    id                TEXT COLLATE "C" PRIMARY KEY,
    lease_id          TEXT COLLATE "C", -- NULL while it waits in a pool
    generation        BIGINT NOT NULL,
    environment_id    TEXT COLLATE "C" NOT NULL REFERENCES environments (id),
    environment_type  TEXT    NOT NULL,
    agent_did         TEXT COLLATE "C" NOT NULL,
    owner             TEXT    NOT NULL,
    backend           TEXT    NOT NULL,
    instance          TEXT    NOT NULL,
    image             TEXT    NOT NULL,
    memory_mb         BIGINT NOT NULL,
    cpu_millis        BIGINT NOT NULL,
    pids_limit        BIGINT NOT NULL,
    disk_mb           BIGINT NOT NULL,
    network           TEXT    NOT NULL,
    env               TEXT    NOT NULL,
    confinement       TEXT    NOT NULL DEFAULT '{}', -- JSON of sandbox.Confinement
    host_access       TEXT    NOT NULL DEFAULT '{}', -- JSON of sandbox.HostAccess
    egress            TEXT    NOT NULL DEFAULT '{}', -- JSON of sandbox.Egress
    secrets_owed      BIGINT  NOT NULL DEFAULT 0, -- when it began to lack some; 0: it has all
    renewal_owed      BIGINT  NOT NULL DEFAULT 0, -- time of the oldest use not yet reported to its backend; 0: none
    renewed_at        BIGINT  NOT NULL DEFAULT 0, -- time of the last report to its backend
    sleep_mode        TEXT    NOT NULL CHECK (sleep_mode IN ('pause', 'stop')),
    ttl               BIGINT NOT NULL, -- microseconds
    max_lifetime      BIGINT NOT NULL,
    sleep_after       BIGINT NOT NULL,
    expiry_conditions TEXT    NOT NULL,
    settings          TEXT    NOT NULL, -- JSON of sandbox.LeaseSettings
    desired           TEXT    NOT NULL CHECK (desired IN ('present', 'gone')),
    phase             TEXT    NOT NULL CHECK (phase IN ('pending', 'awake', 'asleep', 'gone')),
    leased_at         BIGINT NOT NULL,
    ready_at          BIGINT NOT NULL DEFAULT 0,
    last_activity     BIGINT NOT NULL,
    observed_at       BIGINT NOT NULL DEFAULT 0,
    ended_at          BIGINT NOT NULL DEFAULT 0,
    ended_by          TEXT    NOT NULL DEFAULT '' CHECK (ended_by IN ('', 'condition', 'ttl', 'max_lifetime', 'budget',
                          'release', 'failed', 'crashed', 'vanished', 'environment', 'admin')),
    end_reason        TEXT    NOT NULL DEFAULT '',
    destroyed_at      BIGINT NOT NULL DEFAULT 0,
    cpu_mark          BIGINT NOT NULL DEFAULT 0, -- last raw CPU reading, microseconds
    due_at            BIGINT NOT NULL,
    attempts          BIGINT NOT NULL DEFAULT 0,
    last_error        TEXT    NOT NULL DEFAULT '',
    claim             TEXT    NOT NULL DEFAULT '', -- who works on it now
    claimed_for       TEXT    NOT NULL DEFAULT '',
    claimed_until     BIGINT NOT NULL DEFAULT 0,
    last_sequence     BIGINT NOT NULL DEFAULT 0,
    -- The label under which its backend knows an adopted sandbox; '' is this ledger's own.
    ledger_id         TEXT COLLATE "C" NOT NULL DEFAULT '',
    pooled_at         BIGINT NOT NULL DEFAULT 0, -- made for a pool then
    -- The deadline that its backend was given when it was made; 0 is leased_at + max_lifetime.
    hard_deadline     BIGINT NOT NULL DEFAULT 0,
    -- The state that follows from its events, its time, why it sleeps, why it failed.
    stands            TEXT    NOT NULL DEFAULT 'pending' CHECK (stands IN ('pending', 'ready', 'asleep', 'stopped', 'failed', 'deleting', 'deleted')),
    changed_at        BIGINT NOT NULL DEFAULT 0,
    stop_reason       TEXT    NOT NULL DEFAULT '',
    error_code        TEXT    NOT NULL DEFAULT '',
    error_message     TEXT    NOT NULL DEFAULT '',
    down_since        BIGINT NOT NULL DEFAULT 0, -- not well since it stopped by itself; 0 when it is
    crashes           BIGINT NOT NULL DEFAULT 0, -- how often it has stopped since
    incarnation       BIGINT NOT NULL DEFAULT 0, -- the backend's number of the start that usage is counted from
    state_spec        TEXT, -- JSON of sandbox.StateSpec; NULL: no state of /data is kept
    state_key         TEXT COLLATE "C" NOT NULL DEFAULT '', -- whose state it is
    state_role        TEXT    NOT NULL DEFAULT '' CHECK (state_role IN ('', 'waiting', 'holder', 'copy', 'done', 'lost')),
    state_restored    TEXT, -- JSON of sandbox.SavedState
    state_changed_at  BIGINT NOT NULL DEFAULT 0, -- the last known change
    state_saved_at    BIGINT NOT NULL DEFAULT 0, -- as of then it is saved
    state_tried_at    BIGINT NOT NULL DEFAULT 0, -- the last try to save it began
    state_failing_since BIGINT NOT NULL DEFAULT 0,
    state_error       TEXT    NOT NULL DEFAULT '',
    state_error_code  TEXT    NOT NULL DEFAULT '',
    -- When to look again: no process works on it before its claim expires.
    wake_at           BIGINT GENERATED ALWAYS AS (GREATEST(due_at, claimed_until)) STORED,
    -- When a lease ends that nothing uses.
    expires_at        BIGINT GENERATED ALWAYS AS (LEAST(last_activity + ttl, leased_at + max_lifetime)) STORED,
    UNIQUE (lease_id, generation),
    CHECK ((desired = 'gone') = (ended_by <> '')),
    CHECK (phase <> 'gone' OR desired = 'gone')
);
CREATE INDEX sandboxes_wake ON sandboxes (instance, wake_at) WHERE phase <> 'gone';
CREATE INDEX sandboxes_pool ON sandboxes (environment_id) WHERE phase <> 'gone' AND lease_id IS NULL;
CREATE INDEX sandboxes_environment ON sandboxes (environment_id) WHERE phase <> 'gone';
-- A resync reads an instance's sandboxes in pages.
CREATE INDEX sandboxes_instance ON sandboxes (instance, id) WHERE phase <> 'gone';

-- Two sandboxes never save the state of one key.
CREATE UNIQUE INDEX sandboxes_state_holder ON sandboxes (state_key) WHERE state_role = 'holder';
CREATE INDEX sandboxes_state_waiting ON sandboxes (state_key) WHERE state_role = 'waiting';

-- The last published state of each key.
CREATE TABLE saved_states (
    key            TEXT COLLATE "C" PRIMARY KEY,
    agent_did      TEXT COLLATE "C" NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    sandbox_id     TEXT COLLATE "C" NOT NULL, -- who saved it
    generation     BIGINT NOT NULL,
    saved_at       BIGINT NOT NULL,
    object         TEXT COLLATE "C" NOT NULL,
    sha256         TEXT    NOT NULL,
    bytes          BIGINT NOT NULL, -- as stored
    unpacked_bytes BIGINT NOT NULL,
    files          BIGINT NOT NULL,
    skipped        BIGINT NOT NULL
);

-- Possible objects that no saved state names. Each is deleted at its time, unless it is published before.
CREATE TABLE doomed_objects (
    object    TEXT COLLATE "C" PRIMARY KEY,
    delete_at BIGINT NOT NULL
);
CREATE INDEX doomed_objects_due ON doomed_objects (delete_at);

-- How far the log of each environment's gateway is recorded as events.
CREATE TABLE egress_cursors (
    instance       TEXT COLLATE "C" NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    run            BIGINT NOT NULL,
    line           BIGINT NOT NULL,
    PRIMARY KEY (instance, environment_id)
);

-- Uses of a sandbox that count as activity until they end: commands, open streams.
CREATE TABLE holds (
    sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id),
    holder     TEXT    NOT NULL,
    until      BIGINT NOT NULL, -- pushed forward while its process lives
    PRIMARY KEY (sandbox_id, holder)
);

CREATE TABLE events (
    id             BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    environment_id TEXT COLLATE "C" NOT NULL,
    lease_id       TEXT COLLATE "C" NOT NULL DEFAULT '',
    sandbox_id     TEXT COLLATE "C" NOT NULL DEFAULT '',
    generation     BIGINT NOT NULL DEFAULT 0,
    sequence       BIGINT NOT NULL DEFAULT 0, -- per sandbox, from 1, without gaps
    type           TEXT    NOT NULL,
    at             BIGINT NOT NULL,
    data           TEXT    NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX events_sequence ON events (sandbox_id, sequence) WHERE sandbox_id <> '';
CREATE INDEX events_environment ON events (environment_id, id);

CREATE TABLE deliveries (
    id             TEXT COLLATE "C" PRIMARY KEY, -- the sender's id of the message
    received_at    BIGINT NOT NULL,
    source         TEXT    NOT NULL,
    body           BYTEA   NOT NULL,
    type           TEXT    NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    agent_did      TEXT COLLATE "C" NOT NULL,
    generation     BIGINT NOT NULL,
    occurred_at    BIGINT NOT NULL,
    status         TEXT    NOT NULL CHECK (status IN ('applied', 'stale', 'unmatched')),
    matched        BIGINT NOT NULL
);

-- Prices as they were when a usage period began, so that later prices do not change earlier costs.
CREATE TABLE price_books (
    id       TEXT COLLATE "C" PRIMARY KEY, -- SHA-256 of body
    backend  TEXT    NOT NULL,
    body     TEXT    NOT NULL, -- JSON of sandbox.PriceBook
    added_at BIGINT NOT NULL
);

CREATE TABLE usage_periods (
    id             BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    sandbox_id     TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id),
    lease_id       TEXT COLLATE "C" NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    agent_did      TEXT COLLATE "C" NOT NULL,
    backend        TEXT    NOT NULL,
    price_book_id  TEXT COLLATE "C" NOT NULL REFERENCES price_books (id),
    memory_mb      BIGINT NOT NULL,
    cpu_millis     BIGINT NOT NULL,
    disk_mb        BIGINT NOT NULL,
    state          TEXT    NOT NULL CHECK (state IN ('awake', 'asleep')),
    started_at     BIGINT NOT NULL,
    ended_at       BIGINT NOT NULL DEFAULT 0, -- 0 while open
    cpu            BIGINT NOT NULL DEFAULT 0, -- CPU time used in it, microseconds
    instance       TEXT    NOT NULL DEFAULT '',
    rolled_at      BIGINT NOT NULL DEFAULT 0, -- counted in cost_days since; 0 before
    generations    BIGINT NOT NULL DEFAULT 0, -- 1: a generation's usage begins with it
    CHECK (ended_at = 0 OR ended_at >= started_at)
);
CREATE UNIQUE INDEX usage_periods_open ON usage_periods (sandbox_id) WHERE ended_at = 0;
CREATE INDEX usage_periods_sandbox ON usage_periods (sandbox_id);
CREATE INDEX usage_periods_environment ON usage_periods (environment_id, started_at);
CREATE INDEX usage_periods_unrolled ON usage_periods (environment_id, ended_at) WHERE rolled_at = 0;
CREATE INDEX usage_periods_ended ON usage_periods (ended_at, started_at);

-- Ended usage, summed by UTC day and lease for ever. A pool's usage has no lease and no agent.
CREATE TABLE cost_days (
    month          TEXT COLLATE "C" NOT NULL, -- 2006-01
    day            TEXT COLLATE "C" NOT NULL, -- 2006-01-02
    environment_id TEXT COLLATE "C" NOT NULL,
    lease_id       TEXT COLLATE "C" NOT NULL,
    agent_did      TEXT COLLATE "C" NOT NULL,
    backend        TEXT    NOT NULL,
    instance       TEXT    NOT NULL, -- the account
    generations    BIGINT NOT NULL, -- those whose usage began on the day
    awake          BIGINT NOT NULL, -- microseconds
    asleep         BIGINT NOT NULL,
    cpu            BIGINT NOT NULL,
    memory         BIGINT NOT NULL, -- MiB x milliseconds, awake
    disk           BIGINT NOT NULL, -- MB x milliseconds, awake
    -- Gross, in nano-US-dollars, by what it is for; and the same use at Cloudflare's list prices.
    cost_memory    BIGINT NOT NULL,
    cost_cpu       BIGINT NOT NULL,
    cost_disk      BIGINT NOT NULL,
    cost_asleep    BIGINT NOT NULL,
    shadow_memory  BIGINT NOT NULL,
    shadow_cpu     BIGINT NOT NULL,
    shadow_disk    BIGINT NOT NULL,
    shadow_asleep  BIGINT NOT NULL,
    cost           BIGINT GENERATED ALWAYS AS (cost_memory + cost_cpu + cost_disk + cost_asleep) STORED,
    -- A month's report sums the days of each lease in this order.
    PRIMARY KEY (month, environment_id, lease_id, instance, day)
);
CREATE INDEX cost_days_environment ON cost_days (environment_id, day, cost);

-- The price book of the most recently begun usage of an account on a UTC day. Its plan applies.
CREATE TABLE account_days (
    instance      TEXT    NOT NULL,
    day           TEXT COLLATE "C" NOT NULL,
    backend       TEXT    NOT NULL,
    price_book_id TEXT COLLATE "C" NOT NULL REFERENCES price_books (id),
    begun_at      BIGINT NOT NULL,
    PRIMARY KEY (instance, day)
);

-- Reached thresholds of budgets that have an event, each once for an amount and a month.
CREATE TABLE budget_thresholds (
    environment_id TEXT COLLATE "C" NOT NULL REFERENCES environments (id),
    month          TEXT COLLATE "C" NOT NULL, -- 2006-01
    monthly        BIGINT NOT NULL, -- the budget, nano-US-dollars
    percent        BIGINT NOT NULL,
    spent          BIGINT NOT NULL, -- when it was noticed
    reached_at     BIGINT NOT NULL,
    PRIMARY KEY (environment_id, month, monthly, percent)
);

CREATE TABLE drift_findings (
    id             BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    kind           TEXT    NOT NULL CHECK (kind IN ('vanished', 'stopped', 'out_of_memory', 'changed', 'orphan', 'leftover', 'usage')),
    sandbox_id     TEXT COLLATE "C" NOT NULL,
    lease_id       TEXT COLLATE "C" NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    instance       TEXT    NOT NULL,
    field          TEXT    NOT NULL DEFAULT '',
    expected       TEXT    NOT NULL DEFAULT '',
    observed       TEXT    NOT NULL DEFAULT '',
    first_seen_at  BIGINT NOT NULL,
    last_seen_at   BIGINT NOT NULL,
    looks          BIGINT NOT NULL DEFAULT 1,
    resolved_at    BIGINT NOT NULL DEFAULT 0, -- 0 while open
    resolution     TEXT    NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX drift_findings_open ON drift_findings (instance, sandbox_id, kind, field) WHERE resolved_at = 0;
CREATE INDEX drift_findings_environment ON drift_findings (environment_id);

-- Retention. Sandboxes that were destroyed long enough ago are removed. These rows stay for ever, so that no id
-- is reused and a reader who asks for an old id learns its fate.
CREATE TABLE retired_sandboxes (
    id             TEXT COLLATE "C" PRIMARY KEY,
    lease_id       TEXT COLLATE "C" NOT NULL, -- '' when it was never leased
    generation     BIGINT NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    owner          TEXT    NOT NULL,
    ledger_id      TEXT COLLATE "C" NOT NULL, -- as in sandboxes
    last_sequence  BIGINT NOT NULL,
    last_event_id  BIGINT NOT NULL, -- events.id of the last one
    leased_at      BIGINT NOT NULL,
    ended_at       BIGINT NOT NULL,
    ended_by       TEXT    NOT NULL,
    destroyed_at   BIGINT NOT NULL,
    retired_at     BIGINT NOT NULL,
    cost           BIGINT NOT NULL -- nano-US-dollars
);
CREATE INDEX retired_sandboxes_adopted ON retired_sandboxes (environment_id) WHERE ledger_id <> '';
-- Not all events up to this id are retained.
ALTER TABLE ledgers ADD COLUMN purged_event_id BIGINT NOT NULL DEFAULT 0;
-- Since when only the name of a destroyed environment is kept; 0 before.
ALTER TABLE environments ADD COLUMN retired_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX environments_destroyed ON environments (updated_at) WHERE status = 'destroyed' AND retired_at = 0;
CREATE INDEX sandboxes_gone ON sandboxes (destroyed_at) WHERE phase = 'gone';
CREATE INDEX events_of_environments ON events (at) WHERE sandbox_id = '';
CREATE INDEX deliveries_received ON deliveries (received_at);
CREATE INDEX drift_findings_resolved ON drift_findings (resolved_at) WHERE resolved_at <> 0;

-- Commands. Their parameters have no values of variables, which may be secret.
CREATE TABLE execs (
    id            TEXT COLLATE "C"    PRIMARY KEY,
    named         BIGINT  NOT NULL, -- 1: its caller chose the id, which is kept for ever
    sandbox_id    TEXT COLLATE "C"    NOT NULL REFERENCES sandboxes (id),
    lease_id      TEXT COLLATE "C"    NOT NULL,
    generation    BIGINT  NOT NULL,
    sequence      BIGINT  NOT NULL, -- of the event exec.started
    command       TEXT    NOT NULL, -- JSON list
    env_names     TEXT    NOT NULL, -- JSON list
    cwd           TEXT    NOT NULL,
    run_as        TEXT    NOT NULL,
    timeout       BIGINT  NOT NULL, -- microseconds
    detached      BIGINT  NOT NULL,
    -- The session that it is run in, '' for none; 1: it is a line of its shell; and who gave it.
    session_id    TEXT    NOT NULL DEFAULT '',
    shell         BIGINT  NOT NULL DEFAULT 0,
    source        TEXT    NOT NULL DEFAULT '',
    state         TEXT    NOT NULL CHECK (state IN ('running', 'finished', 'failed', 'cancelled')),
    started_at    BIGINT  NOT NULL,
    finished_at   BIGINT  NOT NULL DEFAULT 0,
    cancel_at     BIGINT  NOT NULL DEFAULT 0, -- when its end was requested
    exit_code     BIGINT  NOT NULL DEFAULT 0,
    timed_out     BIGINT  NOT NULL DEFAULT 0,
    oom_killed    BIGINT  NOT NULL DEFAULT 0,
    error         TEXT    NOT NULL DEFAULT '',
    -- What it wrote in bytes; how much of that is kept; and the latter itself, where it is little: else
    -- it is an object (leasing.outputObject).
    stdout_bytes  BIGINT  NOT NULL DEFAULT 0,
    stdout_kept   BIGINT  NOT NULL DEFAULT 0,
    stdout_inline BYTEA,
    stderr_bytes  BIGINT  NOT NULL DEFAULT 0,
    stderr_kept   BIGINT  NOT NULL DEFAULT 0,
    stderr_inline BYTEA,
    -- Who follows it, and until when that is believed.
    holder        TEXT    NOT NULL DEFAULT '',
    held_until    BIGINT  NOT NULL DEFAULT 0
);
CREATE INDEX execs_lease ON execs (lease_id, generation, sequence);
CREATE INDEX execs_sandbox ON execs (sandbox_id);
CREATE INDEX execs_running ON execs (held_until) WHERE state = 'running';
-- Ids that callers chose for commands that are no longer kept.
CREATE TABLE retired_execs (
    id TEXT COLLATE "C" PRIMARY KEY
);

-- Commands that run once before a sandbox is ready: JSON list of sandbox.PostStart; NULL: none.
ALTER TABLE sandboxes ADD COLUMN post_start TEXT;

-- Until when a sandbox that failed after it was ready is kept for a post-mortem; 0 if it is not kept.
ALTER TABLE sandboxes ADD COLUMN kept_until BIGINT NOT NULL DEFAULT 0;
CREATE INDEX sandboxes_kept ON sandboxes (ended_at) WHERE kept_until > 0;

-- Sessions: places in a sandbox that run commands one after the other. The values of their variables
-- are sealed, and are removed when a session is closed.
CREATE TABLE sessions (
    sandbox_id    TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id),
    id            TEXT COLLATE "C" NOT NULL,
    lease_id      TEXT COLLATE "C" NOT NULL,
    generation    BIGINT  NOT NULL,
    asked         TEXT    NOT NULL, -- JSON: what it was made with
    env_names     TEXT    NOT NULL, -- JSON list
    sealed_env    BYTEA,
    cwd           TEXT    NOT NULL,
    run_as        TEXT    NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('open', 'closed')),
    created_at    BIGINT  NOT NULL,
    closed_at     BIGINT  NOT NULL DEFAULT 0,
    last_sequence BIGINT  NOT NULL DEFAULT 0,
    recorded      BIGINT  NOT NULL DEFAULT 0, -- bytes, as sandbox.MaxSessionRecording counts them
    is_full       BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (sandbox_id, id)
);
CREATE INDEX sessions_lease ON sessions (lease_id, generation);
-- One command at a time runs in a session.
CREATE UNIQUE INDEX execs_in_session ON execs (sandbox_id, session_id) WHERE state = 'running' AND session_id <> '';
-- Input and output of sessions.
CREATE TABLE session_events (
    sandbox_id    TEXT COLLATE "C" NOT NULL,
    session_id    TEXT COLLATE "C" NOT NULL,
    sequence      BIGINT  NOT NULL,
    at            BIGINT  NOT NULL,
    type          TEXT    NOT NULL CHECK (type IN ('input', 'output', 'error', 'system')),
    source        TEXT    NOT NULL CHECK (source IN ('user', 'agent', 'system')),
    exec_id       TEXT    NOT NULL,
    data          BYTEA NOT NULL,
    PRIMARY KEY (sandbox_id, session_id, sequence)
);

-- Processes that run as long as their sandbox does.
CREATE TABLE processes (
    sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id),
    name       TEXT COLLATE "C" NOT NULL,
    lease_id   TEXT    NOT NULL,
    generation BIGINT  NOT NULL,
    declared   BIGINT  NOT NULL, -- 1: by its environment
    command    TEXT    NOT NULL, -- JSON list
    env_names  TEXT    NOT NULL, -- JSON list
    env        TEXT    NOT NULL, -- JSON object; empty once it starts no more
    cwd        TEXT    NOT NULL,
    run_as     TEXT    NOT NULL,
    restart    TEXT    NOT NULL CHECK (restart IN ('no', 'always')),
    state      TEXT    NOT NULL CHECK (state IN ('pending', 'running', 'exited', 'failed', 'killed', 'stopped')),
    run        TEXT    NOT NULL DEFAULT '', -- the backend's id of its latest start
    lost       BIGINT  NOT NULL DEFAULT 0, -- 1: its sandbox was stopped; it is started again under that id
    starts     BIGINT  NOT NULL DEFAULT 0,
    started_at BIGINT  NOT NULL DEFAULT 0,
    failures   BIGINT  NOT NULL DEFAULT 0, -- starts in a row that did not last
    exited_at  BIGINT  NOT NULL DEFAULT 0,
    exit_code  BIGINT  NOT NULL DEFAULT 0,
    oom_killed BIGINT  NOT NULL DEFAULT 0,
    error      TEXT    NOT NULL DEFAULT '',
    kill_at    BIGINT  NOT NULL DEFAULT 0, -- when its end was requested
    due_at     BIGINT  NOT NULL, -- when to start a pending one; until when its holder has one that runs
    holder     TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (sandbox_id, name)
);
CREATE INDEX processes_live ON processes (due_at) WHERE state IN ('pending', 'running');

-- What awake sandboxes used, about once a minute, for a day.
CREATE TABLE usage_samples (
    sandbox_id   TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id),
    at           BIGINT           NOT NULL,
    cpu          BIGINT           NOT NULL, -- microseconds since the sandbox last started
    memory_bytes BIGINT           NOT NULL,
    pids         BIGINT           NOT NULL,
    PRIMARY KEY (sandbox_id, at)
);
CREATE INDEX usage_samples_at ON usage_samples (at);

-- The caller that requested the change, and its address; '' for the service itself.
ALTER TABLE events ADD COLUMN actor TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN address TEXT NOT NULL DEFAULT '';

-- When a backup was taken. The program that opens a backup records the time of the restore, and clears this.
ALTER TABLE ledgers ADD COLUMN backed_up_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledgers ADD COLUMN restored_at BIGINT NOT NULL DEFAULT 0;

-- Bearer tokens, without their text. Tokens that replace each other by rotation have one name.
CREATE TABLE tokens (
    id           TEXT COLLATE "C" PRIMARY KEY,
    name         TEXT COLLATE "C" NOT NULL,
    hash         BYTEA   NOT NULL UNIQUE, -- SHA-256 of the text, 256 random bits
    scopes       TEXT    NOT NULL, -- JSON list
    environments TEXT    NOT NULL, -- JSON list of patterns
    created_at   BIGINT  NOT NULL,
    created_by   TEXT    NOT NULL,
    expires_at   BIGINT  NOT NULL DEFAULT 0, -- 0: never
    last_used_at BIGINT  NOT NULL DEFAULT 0,
    revoked_at   BIGINT  NOT NULL DEFAULT 0,
    revoked_by   TEXT    NOT NULL DEFAULT ''
);
CREATE INDEX tokens_name ON tokens (name);

-- Browsers that logged in with a token. The secret that a browser keeps is not stored here.
CREATE TABLE logins (
    hash       BYTEA   PRIMARY KEY, -- SHA-256 of the log-in's id, 256 random bits
    token_hash BYTEA   NOT NULL, -- SHA-256 of the token's text
    created_at BIGINT  NOT NULL,
    expires_at BIGINT  NOT NULL
);
CREATE INDEX logins_expires ON logins (expires_at);

-- begin_commit is the first statement of every transaction that writes. It waits for the lock on
-- this ledger, which lasts until the end of the transaction, and returns the time at which it got
-- the lock. It is a function so that its reads see everything that was committed before it got the
-- lock. A single statement would read as of the time at which it began to wait.
CREATE FUNCTION begin_commit(OUT moment BIGINT, OUT oldest_program BIGINT) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock((1935830883::BIGINT << 32) | to_regclass('ledgers')::oid::BIGINT);
    SELECT min_reader INTO oldest_program FROM ledgers;
    moment := (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- Migrations are additive; an older schema is restored from a backup.
