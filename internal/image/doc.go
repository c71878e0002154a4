// Package image builds container images from a local context and manages their names.
//
// # The context hash
//
// A build depends on one tar stream (the files that .dockerignore lets through, in a fixed order, without
// times and owners) and a few options. The hash covers the hashes of the stream's entries, and these cover
// everything in an entry. So equal hashes mean equal bytes for the engine, and entries can be hashed in
// parallel.
//
// # Builders
//
// The classic builder receives the stream. Before the stream ends and the engine starts to work, the hash of
// the sent bytes is compared with the planned one. BuildKit receives a listing and requests the files that it
// does not have (buildContext). The listing is the planned one, and each sent file is compared with it.
package image
