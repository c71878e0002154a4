data "sandbox_environment" "catan" {
  name = "catan-7"
}

output "catan_is_open" {
  value = data.sandbox_environment.catan.status == "open"
}
