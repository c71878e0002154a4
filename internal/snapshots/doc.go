// Package snapshots keeps /data of sandboxes beyond their generation. The key of a snapshot says which leases
// share it. At most one sandbox of a key is its holder, and only the holder saves. A sandbox becomes the
// holder before its first step. It stops being the holder when its last snapshot is saved or lost; then the
// next sandbox may begin. So a generation always starts with what the last holder published last.
//
// # Roles
//
// If an environment keeps /data, each sandbox has a role for the snapshot of its key:
//
//	              first step, without holder
//	(new) ───────────────────────────────────────> holder ───> done   saved for the last time
//	  │ │   the holder has ended      let go          │
//	  │ └────────────────────> waiting ───────────────┘ └─────> lost   it cannot be saved
//	  └────────────────────────────────────────────────────────> copy   the holder lives
//	        (scope agent only)
//
// At most one sandbox holds a key; an index of the ledger enforces this. Only the holder publishes. Roles and
// publications change only in transactions. The claim of the first step gives the role. The settling of a save
// publishes, but only while the claim of the save holds. So a late save of generation g never replaces a snapshot of
// g+1, and each generation begins with the last published snapshot. The steps:
//
//	spawn, assign   also restore the published snapshot or initial_state, and then the skills. No caller uses
//	                the sandbox before, so the step may be repeated.
//	save, checkpoint   freeze, read, thaw, upload, publish. Uses wait for the thaw, not for the upload.
//	save, the last one freeze for good, read, upload, publish; the next step is kill.
//	thaw            thaw a sandbox that a process left frozen when it died
//
// Before an upload, the object is marked for deletion. Publishing it removes the mark, and marks the object that it
// replaces. Collect deletes marked objects once they are due.
package snapshots
