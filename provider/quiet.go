package provider

import "strings"

// sdkLog is the variable with the level at which the framework and the protocol's library log.
const sdkLog = "TF_LOG_SDK"

// quiet turns off what the framework logs at each of its steps where no log takes it. Terraform hands a
// provider's log on only where TF_LOG, or a variable whose name begins so, asks for it; without, it parses each
// line and drops it, which was a quarter of the time of a plan of 50 leases.
func quiet(environ []string, setenv func(key, value string) error) error {
	for _, v := range environ {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "TF_LOG") && value != "" {
			return nil
		}
	}
	return setenv(sdkLog, "off")
}
