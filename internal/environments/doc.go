// Package environments creates, changes, reads and deletes environments, with their resources on backends.
//
// # Environments
//
// One request at a time, across all processes, changes an environment's resources on its backend: the one that holds
// the environment's claim. Others wait. So no request removes what another one created, and each finds the ledger and
// the backend in the state that the previous one left.
//
//	PUT      claim, store the settings ──> Provision ──> settle: made
//	                                          └ failed ─> never made: Deprovision, destroyed; or deleting if that fails
//	                                                      made before: the new settings stay
//	DELETE   deleting, end leases, wait ──> claim ──> Deprovision ──> settle: destroyed
//	loop     claim each one that is unclaimed and unmade or deleting ──> Deprovision ──> settle: destroyed
//
// An environment is unmade until its first Provision succeeds. Until then it grants no lease, so nothing depends on it.
// A step continues when its caller leaves, because a backend may still carry out an interrupted request. A creation
// with CreateOnly whose caller has left stays unmade. A retry finds the name free. Without a retry, the loop removes
// the environment.
package environments
