variable "ttl" {
  type    = string
  default = "24h"

  validation {
    condition     = provider::sandbox::parse_duration(var.ttl) <= provider::sandbox::parse_duration("48h")
    error_message = "A lease of this team ends after two days."
  }
}

output "ttl_seconds" {
  value = provider::sandbox::parse_duration(var.ttl) # 86400
}
