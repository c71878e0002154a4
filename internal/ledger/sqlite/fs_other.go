//go:build !linux

package sqlite

// FreeBytes is unknown on this system.
func FreeBytes(string) (uint64, error) { return 0, nil }

// RefuseNetworkFileSystem cannot check on this system: the operator must.
func RefuseNetworkFileSystem(string) error { return nil }
