// Package image builds container images from a local context and looks after their names.
//
// # The context hash
//
// What a build depends on is one tar stream (the files that .dockerignore lets through, in a fixed
// order, without times and owners) and a handful of options. The hash is taken over the hashes of
// that stream's entries, which hold all that an entry consists of, so equal hashes mean that the
// engine gets equal bytes; and entries can be hashed side by side.
//
// # Builders
//
// The classic builder gets the stream. The hash of what is sent is compared with the one that was planned
// before the stream ends and the engine starts to work. BuildKit gets a listing and asks for the files that it has
// no copy of (offer): the listing is what was planned, and each file that is sent is held against it.
package image
