//go:build !linux

package ledger

// freeBytes is unknown on this system.
func freeBytes(string) (uint64, error) { return 0, nil }

// refuseNetworkFileSystem cannot check on this system: the operator must.
func refuseNetworkFileSystem(string) error { return nil }
