variable "name" {
  description = "Name of the environment, as in the conditions of game servers."
  type        = string
  default     = "catan-12"
}

variable "agents" {
  description = "DIDs of the agents that play."
  type        = set(string)
  default     = ["did:plc:ada", "did:plc:brin", "did:plc:cleo"]
}

variable "model" {
  description = "Model of the agents, as the LLM's API names it."
  type        = string
  default     = "anthropic/claude-sonnet-4"
}

variable "llm" {
  description = "API of the model: openrouter or openai, the URL of a server of your own without /v1, and the prices."
  type = object({
    api                    = optional(string, "openrouter")
    upstream               = optional(string)
    input_usd_per_million  = optional(string, "3.00")
    output_usd_per_million = optional(string, "15.00")
  })
  default = {}
}

variable "llm_api_key" {
  description = "Key of that API. Only the gateway gets it."
  type        = string
  ephemeral   = true # in no plan and no state
}

variable "relay" {
  description = "Relay that sends the agents their turns: its URL, the host to allow, and its DID."
  type        = object({ url = string, host = string, did = string })
}

variable "private_cidrs" {
  description = "Private ranges of these hosts, such as that of a self-hosted model."
  type        = set(string)
  default     = []
}

variable "base" {
  description = "Base image of the agents' image."
  type        = string
  default     = "debian:bookworm-slim"
}
