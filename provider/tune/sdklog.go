package tune

import "strings"

// logLevels are the variables that set the log levels of the libraries: the common one, the framework's and the
// protocol library's. A library without its own level formats each line before the common level drops it.
var logLevels = []string{"TF_LOG_SDK", "TF_LOG_SDK_FRAMEWORK", "TF_LOG_SDK_PROTO"}

// quiet turns off the libraries' logs, unless TF_LOG or a variable with that prefix asks for a log. Otherwise Terraform
// parses each line and drops it. This took a quarter of the time of a plan of 50 leases.
func quiet(environ []string, setenv func(key, value string) error) error {
	for _, v := range environ {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "TF_LOG") && value != "" {
			return nil
		}
	}
	for _, name := range logLevels {
		if err := setenv(name, "off"); err != nil {
			return err
		}
	}
	return nil
}
