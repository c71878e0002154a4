# Many at once, for example after a lost state. Remove the block once an apply has imported them.
import {
  for_each = toset(["did:plc:kira", "did:plc:thorn"])

  to = sandbox_lease.hero[each.key]
  id = "${each.key}::dungeon-3"
}
