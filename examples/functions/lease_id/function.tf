output "lease" {
  value = provider::sandbox::lease_id("did:plc:alice", "catan-7") # did:plc:alice::catan-7
}
