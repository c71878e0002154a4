data "sandbox_leases" "playing" {
  environment_id = "catan-7"
  status         = "active"
}

output "players" {
  value = { for l in data.sandbox_leases.playing.leases : l.agent_did => l.phase }
}
