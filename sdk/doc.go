// Package sdk holds the libraries of the API in Python and TypeScript, and their tests. Types and plain operations are
// generated from the OpenAPI document. Go programs use reconciler/client.
package sdk
