variable "season" {
  type    = number
  default = 0
}

# A condition ends the arena with its leases. The next season reopens it.
resource "sandbox_environment" "arena" {
  name  = "arena-1"
  type  = "rpg"
  image = sandbox_container_image.hero.reference
  epoch = var.season
}

# Leased anew for every season.
resource "sandbox_lease" "fighter" {
  agent_did      = "did:plc:mira"
  environment_id = sandbox_environment.arena.id

  lifecycle {
    replace_triggered_by = [sandbox_environment.arena.epoch]
  }
}
