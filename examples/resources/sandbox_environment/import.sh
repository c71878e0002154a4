# By name.
terraform import sandbox_environment.catan catan-7
