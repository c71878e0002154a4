variable "image" {
  type    = string
  default = "ghcr.io/acme/player:1.4"

  validation {
    condition     = provider::sandbox::parse_image_reference(var.image).registry == "ghcr.io"
    error_message = "Images come from ghcr.io."
  }
}

output "tag" {
  value = provider::sandbox::parse_image_reference(var.image).tag # 1.4
}
