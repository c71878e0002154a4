// Package output keeps what commands and sessions have written: short output in the ledger, long output as objects
// beside it, and altogether no more than some bounds allow.
package output
