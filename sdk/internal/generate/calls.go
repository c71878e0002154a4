package generate

// Call defines how a library sends an operation. The Go client has the same rules.
type Call struct {
	// Slow calls wait for a backend.
	Slow bool
	// Once disables retries, because the operation is not idempotent.
	Once bool
	// OnceWith and OnceWithout are fields of the body. The operation is not idempotent if OnceWith is set, or OnceWithout
	// is not.
	OnceWith, OnceWithout string
	// Longer is the field of the body with additional time for the call.
	Longer string
}

// Calls has the operations with a generated method.
var Calls = map[string]Call{
	"acquire-lease":       {Slow: true},
	"acquire-leases":      {Slow: true},
	"adopt":               {Slow: true},
	"audit":               {Slow: true},
	"cancel-exec":         {Slow: true},
	"check-environment":   {Slow: true},
	"close-session":       {Slow: true},
	"create-session":      {OnceWithout: "id"},
	"create-token":        {Once: true},
	"delete-environment":  {Slow: true},
	"delete-lease":        {Slow: true},
	"delete-state":        {},
	"get-costs":           {},
	"get-environment":     {},
	"get-exec":            {},
	"get-lease":           {Slow: true}, // with observe
	"get-ledger":          {},
	"get-process":         {},
	"get-session":         {},
	"kill-process":        {Slow: true},
	"lease-health":        {Slow: true},
	"lease-usage":         {Slow: true},
	"lease-usage-history": {Slow: true},
	"list-agents":         {},
	"list-deliveries":     {},
	"list-drift":          {},
	"list-environments":   {},
	"list-events":         {},
	"list-execs":          {},
	"list-files":          {Slow: true},
	"list-leases":         {Slow: true}, // with observe
	"list-llm-calls":      {},
	"list-processes":      {},
	"list-session-events": {},
	"list-sessions":       {},
	"list-states":         {},
	"list-tokens":         {},
	"push-workspace":      {Slow: true},
	"put-environment":     {Slow: true, OnceWith: "create_only"},
	"release-lease":       {Slow: true},
	"remove-file":         {Slow: true, Once: true}, // a retry would not find the file
	"renew-lease":         {},
	"reopen-environment":  {},
	"revoke-token":        {},
	"rotate-token":        {Once: true},
	"sleep-lease":         {Slow: true},
	"start-process":       {Slow: true, Once: true}, // the process may exit before a retry, which would start it again
	"stat-file":           {Slow: true},
	"sweep":               {Slow: true},
	"wait-process":        {Slow: true, Longer: "timeout"},
	"wake-lease":          {Slow: true},
}

// ByHand has the operations that the libraries implement by hand, because they stream, sign or pass bytes on. It maps
// them to the method of the client, in Python's spelling.
var ByHand = map[string]string{
	"delete-agent":          "ask_agent",
	"exec":                  "exec",
	"exec-in-session":       "exec_in_session",
	"get-agent":             "ask_agent",
	"livez":                 "livez",
	"metrics":               "metrics",
	"post-agent":            "ask_agent",
	"post-condition":        "send_condition",
	"put-agent":             "ask_agent",
	"read-companion":        "read_companion",
	"read-exec":             "read_exec",
	"read-files":            "read_files",
	"read-process":          "read_process",
	"read-workspace-bundle": "read_workspace",
	"read-workspace-diff":   "read_workspace",
	"readyz":                "readyz",
	"run":                   "run",
	"write-files":           "write_files",
}

// Method returns the name of an operation's method, in Python's spelling.
func Method(operation string) string {
	if name := ByHand[operation]; name != "" {
		return name
	}
	return snake(operation)
}
