// Package service declares the lease service: what package leasing implements on a ledger, and package client over HTTP.
// Its types are those of package sandbox, which is public; these interfaces grow with every release, and are not.
package service
