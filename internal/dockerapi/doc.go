// Package dockerapi is the only package that imports the Docker client. It finds the engine, and re-exports the
// client's names that this program uses. So a change to another client changes only this package.
package dockerapi
