# Why the leases of an environment ended.
data "sandbox_events" "ended" {
  environment_id = "catan-7"
  type           = "lease.ended"
}

output "why_leases_ended" {
  value = { for e in data.sandbox_events.ended.events : "${e.lease_id} ${e.generation}" => jsondecode(e.data) }
}

# Events since the last one that was read.
variable "seen" {
  type    = number
  default = 0
}

data "sandbox_events" "new" {
  after_id = var.seen
  limit    = 100
}
