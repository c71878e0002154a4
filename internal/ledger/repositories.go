package ledger

// A transaction has the rows of each subject behind a type of its own. Tx itself has those of environments, leases,
// sandboxes and events, which every subject refers to.

// Commands are the rows of commands, sessions and processes, with the output that is kept of them.
type Commands struct{ tx *Tx }

// Commands returns the transaction's rows of commands, sessions and processes.
func (tx *Tx) Commands() Commands { return Commands{tx} }

// Accounting is what was used and what it cost: usage periods, samples, price books, sums and budgets.
type Accounting struct{ tx *Tx }

// Accounting returns the transaction's rows of usage and costs.
func (tx *Tx) Accounting() Accounting { return Accounting{tx} }

// Snapshots are what is saved of /data, and the objects that are marked for deletion.
type Snapshots struct{ tx *Tx }

// Snapshots returns the transaction's rows of saved data.
func (tx *Tx) Snapshots() Snapshots { return Snapshots{tx} }

// Findings are the differences that were found between the ledger and its backends.
type Findings struct{ tx *Tx }

// Findings returns the transaction's drift findings.
func (tx *Tx) Findings() Findings { return Findings{tx} }

// Witnesses are the numbers that the ledger leaves on backend instances.
type Witnesses struct{ tx *Tx }

// Witnesses returns the transaction's witnesses.
func (tx *Tx) Witnesses() Witnesses { return Witnesses{tx} }

// Retention removes what ended long ago.
type Retention struct{ tx *Tx }

// Retention returns what removes old rows in the transaction.
func (tx *Tx) Retention() Retention { return Retention{tx} }

// Tokens are the access tokens and logins of the HTTP interface.
type Tokens struct{ tx *Tx }

// Tokens returns the transaction's access tokens and logins.
func (tx *Tx) Tokens() Tokens { return Tokens{tx} }
