// Package files moves files in and out of the sandboxes of leases. It holds the sandboxes meanwhile.
package files
