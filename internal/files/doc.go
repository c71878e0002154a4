// Package files moves files in and out of the sandboxes of leases, which are held meanwhile.
package files
