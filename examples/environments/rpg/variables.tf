variable "name" {
  description = "Name of the environment, which game servers name in their conditions."
  type        = string
  default     = "dungeon-3"
}

variable "agents" {
  description = "DIDs of the agents that play."
  type        = set(string)
  default     = ["did:plc:kira", "did:plc:thorn"]
}

variable "model" {
  description = "Model of the agents, by the name that the LLM's API has for it."
  type        = string
  default     = "anthropic/claude-sonnet-4"
}

variable "llm" {
  description = "OpenAI-compatible API of the model: its URL, and the host that sandboxes may reach for it."
  type        = object({ url = string, host = string })
  default     = { url = "https://openrouter.ai/api/v1", host = "openrouter.ai" }
}

variable "llm_api_key" {
  description = "Key of that API."
  type        = string
  ephemeral   = true # it is in no plan and no state
}

variable "relay" {
  description = "Relay that tells the agents of their turns: its URL, the host that sandboxes may reach for it, and its DID."
  type        = object({ url = string, host = string, did = string })
}

variable "private_cidrs" {
  description = "Private ranges in which these hosts may lie, such as that of a self-hosted model."
  type        = set(string)
  default     = []
}

variable "base" {
  description = "Image that the agents' image is built on."
  type        = string
  default     = "debian:bookworm-slim"
}
