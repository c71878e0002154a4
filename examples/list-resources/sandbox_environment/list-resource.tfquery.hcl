list "sandbox_environment" "games" {
  provider = sandbox
  config {
    type = "catan"
  }
}
