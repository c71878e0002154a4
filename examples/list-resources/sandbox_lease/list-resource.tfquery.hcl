list "sandbox_lease" "living" {
  provider         = sandbox
  include_resource = true
  config {
    environment_id = "catan-7"
  }
}
