// Package image builds container images from a local context and looks after their names.
//
// # The context hash
//
// What a build depends on is one tar stream (the files that .dockerignore lets through, in a fixed
// order, without times and owners) and a handful of options. The hash is taken over the hashes of
// that stream's entries, which hold all that an entry consists of, so equal hashes mean that the
// engine gets equal bytes; and entries can be hashed side by side. A build compares the hash of what
// it sends with the one that was planned, before the stream ends and the engine starts to work.
package image
