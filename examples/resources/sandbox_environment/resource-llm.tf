# Agents call a model without a key. No sandbox has another way out, and the bill is what the model's
# API said of each call.
variable "model_key" {
  type      = string
  ephemeral = true
}

resource "sandbox_environment" "talking" {
  name  = "catan-talking"
  type  = "catan"
  image = sandbox_container_image.player.reference

  network = {
    mode = "none"
  }

  secrets = {
    model_key = { value_wo = var.model_key, value_wo_version = 1 } # a route's key: no sandbox gets it
  }

  llm = {
    main = {
      api        = "openai" # OPENAI_BASE_URL and OPENAI_API_KEY are set in every sandbox
      credential = "model_key"

      # The prices of a million tokens, from your contract.
      models = {
        "gpt-5-mini" = {
          input_usd_per_million        = "0.25"
          cached_input_usd_per_million = "0.025"
          output_usd_per_million       = "2.00"
        }
      }
      price_source = "https://openai.com/api/pricing"
      prices_as_of = "2026-11-24"

      lease_limits   = { usd = "1.00" }
      monthly_limits = { usd = "50.00" }
    }
  }
}
