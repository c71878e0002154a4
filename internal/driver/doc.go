// Package driver declares what a backend implements: Executor, and interfaces for optional abilities. The domain
// (package sandbox) is public. This package is internal because it changes with every new backend.
package driver
