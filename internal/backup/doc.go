// Package backup keeps a reconciler's data in one file: the ledger, the keys of its secrets, and the objects that the
// ledger names in the bucket. These are snapshots of /data and large output of commands.
//
// The file is a tar archive with these members, in this order:
//
//	ledger.db      the ledger of one moment; see backupfile.Take
//	secret-keys    the key file, unless it was left out or there is none
//	data/OBJECT    each object of the bucket that this ledger names, unless left out
//	manifest.json  what the archive holds, with a checksum of each member; see Manifest
//
// The ledger comes first, because it decides what else belongs to the archive. The manifest comes last, so a truncated
// archive has none. Snapshots that are replaced during a backup stay in the bucket for snapshots.KeepReplaced.
//
// Earlier programs kept only the ledger. Such a file is a backup without keys and objects.
package backup
