package channel

// WithVersions returns a configuration of a release that speaks other versions.
func (cfg ClientConfig) WithVersions(lowest, highest int) ClientConfig {
	cfg.versions = versions{lowest, highest}
	return cfg
}

// WithVersions is that of ClientConfig, for a guest.
func (cfg ServerConfig) WithVersions(lowest, highest int) ServerConfig {
	cfg.versions = versions{lowest, highest}
	return cfg
}
