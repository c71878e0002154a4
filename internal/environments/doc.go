// Package environments creates, changes, reads and deletes environments, and makes and removes what backends have of
// them.
//
// # Environments
//
// What an environment has on its backend is made, changed and removed by one request at a time, of whichever process:
// the one that has the environment's claim. Others wait. So no request removes what another one has made, and each
// finds the ledger and the backend as the one before has left them.
//
//	PUT      claim, store the settings ──> Provision ──> settle: made
//	                                          └ failed ─> never made: Deprovision, destroyed; or deleting if that fails
//	                                                      made before: the new settings stay
//	DELETE   deleting, end leases, wait ──> claim ──> Deprovision ──> settle: destroyed
//	loop     claim what is unclaimed and unmade or deleting ──> Deprovision ──> settle: destroyed
//
// An environment is unmade until its first Provision has succeeded: until then it gives out no lease, and so nothing
// depends on it. A step goes on when its caller leaves, because a backend may carry out late what is cut off. A
// creation with CreateOnly whose caller has left stays unmade: its next try finds the name free, and otherwise the
// loop removes it.
package environments
