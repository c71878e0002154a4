// Package snapshots keeps /data of sandboxes beyond their generation. The key of a snapshot says which leases
// share it. At most one sandbox of a key is its holder, and only the holder saves. A sandbox becomes the
// holder before its first step. It stops being the holder when its last snapshot is saved or lost; then the
// next sandbox may begin. So a generation always starts with what the last holder published last.
//
// # Roles
//
// Where an environment keeps /data, a sandbox has a role to what its key names:
//
//	              first step, without holder
//	(new) ───────────────────────────────────────> holder ───> done   saved for the last time
//	  │ │   the holder has ended      let go          │
//	  │ └────────────────────> waiting ───────────────┘ └─────> lost   it never could be
//	  └────────────────────────────────────────────────────────> copy   the holder lives
//	        (scope agent only)
//
// At most one sandbox holds a key, which an index of the ledger sees to, and it alone publishes. Role
// and publication change in transactions only: the claim of the first step gives the role, the settling
// of a save publishes, and only while its claim holds. So a late save of generation g never replaces
// what g+1 saved, and each generation begins with what was published last. The steps:
//
//	spawn, assign   also restore: what was published, or initial_state; then the skills. No caller uses
//	                the sandbox before, so it may be done again.
//	save, checkpoint   freeze, read, thaw, upload, publish. Uses wait for the thaw, not for the upload.
//	save, the last one freeze for good, read, upload, publish; the next step is kill.
//	thaw            a sandbox that a process left frozen when it died
//
// Before an upload, the object is marked for deletion. Publishing it removes the mark, and marks the object that it
// replaces. Collect deletes marked objects once they are due.
package snapshots
