import {
  to = sandbox_environment.game
  id = "player-game"
}

import {
  for_each = toset(["did:plc:kira", "did:plc:thorn", "did:plc:mira"])

  to = sandbox_lease.player[each.key]
  id = "${each.key}::player-game"
}
