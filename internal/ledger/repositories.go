package ledger

// Each subject's rows have a type of their own in a transaction. Tx itself has those of environments, leases,
// sandboxes and events, which all subjects use.

// Commands are the rows of commands, sessions and processes, with their kept output.
type Commands struct{ tx *Tx }

// Commands returns the transaction's rows of commands, sessions and processes.
func (tx *Tx) Commands() Commands { return Commands{tx} }

// Accounting are the rows of usage and cost: usage periods, samples, price books, sums and budgets.
type Accounting struct{ tx *Tx }

// Accounting returns the transaction's rows of usage and costs.
func (tx *Tx) Accounting() Accounting { return Accounting{tx} }

// Snapshots are the snapshots of /data, and the objects marked for deletion.
type Snapshots struct{ tx *Tx }

// Snapshots returns the transaction's rows of saved data.
func (tx *Tx) Snapshots() Snapshots { return Snapshots{tx} }

// Findings are the differences between the ledger and its backends.
type Findings struct{ tx *Tx }

// Findings returns the transaction's drift findings.
func (tx *Tx) Findings() Findings { return Findings{tx} }

// Witnesses are the numbers that the ledger leaves on backend instances.
type Witnesses struct{ tx *Tx }

// Witnesses returns the transaction's witnesses.
func (tx *Tx) Witnesses() Witnesses { return Witnesses{tx} }

// Retention removes old rows.
type Retention struct{ tx *Tx }

// Retention returns the transaction's purger of old rows.
func (tx *Tx) Retention() Retention { return Retention{tx} }

// Tokens are the access tokens and logins of the HTTP interface.
type Tokens struct{ tx *Tx }

// Tokens returns the transaction's access tokens and logins.
func (tx *Tx) Tokens() Tokens { return Tokens{tx} }

// LLM are the calls of models, and their sums.
type LLM struct{ tx *Tx }

// LLM returns the transaction's calls of models.
func (tx *Tx) LLM() LLM { return LLM{tx} }
