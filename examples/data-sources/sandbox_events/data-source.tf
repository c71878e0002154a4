# Why the leases of an environment ended.
data "sandbox_events" "ended" {
  environment_id = "catan-7"
  type           = "lease.ended"
}

output "why_leases_ended" {
  value = { for e in data.sandbox_events.ended.events : "${e.lease_id} ${e.generation}" => jsondecode(e.data) }
}

# What has happened since the last time that somebody looked.
variable "seen" {
  type    = number
  default = 0
}

data "sandbox_events" "new" {
  after_id = var.seen
  limit    = 100
}
