// Package registry speaks to container registries: what a reference points to, copies from one
// registry to another, tags and their removal. It needs no container engine.
//
// # Credentials
//
// Those that are given for a registry by name are used for it. For any other, Docker's own are:
// $DOCKER_CONFIG/config.json and the credential helpers that it names. None of them is ever part of
// an error.
//
// # Trust
//
// Certificates are checked against the system's authorities, those that are given, and those that
// Docker keeps for the registry in /etc/docker/certs.d. Like Docker, a registry on the loopback
// interface or a private address is spoken to without TLS when it has none.
package registry
