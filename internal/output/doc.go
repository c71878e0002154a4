// Package output keeps the output of commands and sessions: short output in the ledger, long output as objects beside
// it. Bounds limit the total.
package output
