data "sandbox_lease" "kira" {
  agent_did      = "did:plc:kira"
  environment_id = "catan-7"
}

output "kira_may_play_until" {
  value = data.sandbox_lease.kira.expires_at
}
