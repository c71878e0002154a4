// Package service declares the lease service. Package leasing implements it on a ledger, package client over
// HTTP. Its types are those of package sandbox, which is public. These interfaces are internal, because they
// grow with every release.
package service
