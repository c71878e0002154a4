// Package registry is a client of container registries: it resolves references, copies images between
// registries, and lists and removes tags. It needs no container engine.
//
// # Credentials
//
// Explicit credentials for a registry come first. Otherwise Docker's own are used: $DOCKER_CONFIG/config.json
// and its credential helpers. Errors never contain credentials.
//
// # Trust
//
// Certificates are checked against the system's CAs, explicit ones, and those that Docker keeps for the
// registry in /etc/docker/certs.d. As in Docker, a registry on the loopback interface or a private address
// may be used without TLS.
package registry
