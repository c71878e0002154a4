// Package dockerapi is the only package that imports the Docker client. It finds the engine, and passes on the names of
// the client that this program uses. A change to another client is a change to this package.
package dockerapi
