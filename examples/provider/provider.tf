terraform {
  required_version = ">= 1.11"
  required_providers {
    sandbox = {
      source = "sandbox-lease/sandbox"
    }
  }
}

# A Docker engine is all that this needs: the provider keeps the ledger itself.
provider "sandbox" {}
