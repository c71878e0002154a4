// Package driver is what a backend implements: Executor, and the interfaces of what only some backends can do. The domain
// (package sandbox) is public; this is not, because it changes with every backend that is added.
package driver
