// Package gitmirror fetches Git repositories for sandboxes, and writes checkouts of them as tar streams.
//
// A mirror is a bare repository below the directory of a Store. One mirror serves all leases with the same URL,
// credential and depth, so each commit is fetched once. A mirror holds packs that this package has checked and indexed,
// and nothing that the other side names: no ref, no hook and no configuration of a repository is ever written to this
// machine, and no git program runs.
//
// Everything that comes from a server or a repository is hostile:
//
//   - A Store connects only to hosts that its operator allows, at addresses that it checks itself. It follows no
//     redirection to another host, and sends a credential only to the host that the credential is for.
//   - The size of a pack, of each object and of all objects is bounded before anything is decompressed into memory.
//   - The names in a checked-out tree follow the rules of git fsck. A link that leads out of the checkout is left out.
//   - A submodule is fetched only from an allowed host, by the protocols that a repository itself may use.
package gitmirror
