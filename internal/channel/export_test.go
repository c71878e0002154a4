package channel

// WithVersions returns a configuration of a release with other protocol versions.
func (cfg ClientConfig) WithVersions(lowest, highest int) ClientConfig {
	cfg.versions = versions{lowest, highest}
	return cfg
}

// WithVersions is ClientConfig.WithVersions for a guest.
func (cfg ServerConfig) WithVersions(lowest, highest int) ServerConfig {
	cfg.versions = versions{lowest, highest}
	return cfg
}
