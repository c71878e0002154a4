resource "sandbox_container_image" "hero" {
  name = "examples/rpg-hero"

  build = {
    context = "${path.module}/../sandbox_container_image/player"
  }
}

resource "sandbox_environment" "dungeon" {
  name  = "dungeon-3"
  type  = "rpg" # its leases end by agent.death, game.finished and campaign.ended
  image = sandbox_container_image.hero.reference

  network = {
    mode = "none"
  }
}

# One sandbox for each hero. A hero who dies leaves its lease ended in the state, with the reason.
resource "sandbox_lease" "hero" {
  for_each = toset(["did:plc:kira", "did:plc:thorn"])

  agent_did      = each.key
  environment_id = sandbox_environment.dungeon.id
}

# The narrator is leased again whenever its lease has ended.
resource "sandbox_lease" "narrator" {
  agent_did      = "did:plc:narrator"
  environment_id = sandbox_environment.dungeon.id
  ttl            = "2h"
  sleep_after    = "0s"
  on_expiry      = "recreate"
  labels         = { role = "narrator" }

  timeouts {
    create = "2m"
  }
}

# A plan reports the fallen without failing.
check "heroes_are_alive" {
  assert {
    condition     = alltrue([for l in sandbox_lease.hero : l.status == "active"])
    error_message = join(", ", [for l in sandbox_lease.hero : "${l.agent_did}: ${l.end_reason}" if l.status != "active"])
  }
}
