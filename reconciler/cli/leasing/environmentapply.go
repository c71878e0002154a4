package leasing

import (
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/strictjson"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxEnvironmentFile limits the file of env apply, in bytes.
const maxEnvironmentFile = 16 << 20

func applyEnvironment(c *console.Console) *cobra.Command {
	var (
		file  string
		flags environmentFlags
	)
	cmd := &cobra.Command{
		Use:   "apply [environment]",
		Short: "Create an environment, or give it new settings",
		Long: `Create an environment, or give it new settings. The settings come from --file, a JSON or YAML file with the
fields of PUT /v1/environments/{id}, and from flags, which override the file. An unknown field is an error. The id is
the argument, or the file's id.

apply sets the whole environment: a setting that is given neither in the file nor as a flag takes its default. Live
leases keep their size and image.`,
		Example: `  sandbox env apply catan-7 --image catan-player:latest --type catan
  sandbox env apply --file catan-7.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usagef("%s takes at most one argument, an environment; see --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var want sandbox.PutEnvironment
			if file != "" {
				if err := readEnvironment(cmd.InOrStdin(), file, &want); err != nil {
					return err
				}
			}
			if len(args) == 1 {
				if want.ID != "" && want.ID != args[0] {
					return exit.Usagef("%s: id: is %q, but the argument is %q", file, want.ID, args[0])
				}
				want.ID = args[0]
			}
			if want.ID == "" {
				return exit.Usagef("%s needs an environment, as its argument or as id in --file", cmd.CommandPath())
			}
			flags.over(cmd.Flags(), &want)
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			e, err := service.PutEnvironment(cmd.Context(), want)
			return printEnvironment(c, cmd, e, err)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "JSON or YAML `file` of settings, - for standard input")
	flags.add(cmd)
	cmd.ValidArgsFunction = c.OfferEnvironments
	return cmd
}

// environmentFlags are flags for the most common settings of environments. All others need a file.
type environmentFlags struct {
	spec            sandbox.PutEnvironment
	ttl, sleepAfter time.Duration
}

func (e *environmentFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&e.spec.Image, "image", "", "image reference of the sandboxes (required, here or in the file)")
	f.StringVar((*string)(&e.spec.ImagePull), "image-pull", "",
		"never or missing: missing lets the engine pull the image if it does not have it (default never)")
	f.StringVar((*string)(&e.spec.Type), "type", "",
		"rpg, catan, coding or custom: sets the default expiry conditions (default custom)")
	f.StringVar((*string)(&e.spec.Backend), "backend", "", "docker or cloudflare (default docker)")
	f.StringVar((*string)(&e.spec.Network), "network", "",
		"none, restricted or full (default restricted; on Cloudflare none)")
	f.Int64Var(&e.spec.Resources.MemoryMB, "memory-mb", 0, "memory of each sandbox in MiB (default: the backend's)")
	f.Int64Var(&e.spec.Resources.CPUMillis, "cpu-millis", 0,
		"CPU of each sandbox in thousandths of a core (default: the backend's)")
	f.DurationVar(&e.ttl, "ttl", 0, "end a lease this long after its last activity (default 24h)")
	f.DurationVar(&e.sleepAfter, "sleep-after", 0, "let an idle sandbox sleep after this time, 0 for never (default 5m)")
	f.StringToStringVar(&e.spec.Labels, "labels", nil, "labels of the environment and its leases, as `key=value,…`")
	f.StringToStringVarP(&e.spec.Env, "env", "e", nil,
		"variable of every sandbox, `NAME=value`, which must not be a secret; may be repeated")
	f.Lookup("labels").DefValue, f.Lookup("env").DefValue = "", "" // not []
	f.BoolVar(&e.spec.CreateOnly, "create-only", false, "fail if the environment exists")
	console.Complete(cmd, "type", sandbox.EnvironmentTypes...)
	console.Complete(cmd, "image-pull", sandbox.PullNever, sandbox.PullMissing)
	console.Complete(cmd, "backend", sandbox.Docker, sandbox.Cloudflare)
	console.Complete(cmd, "network", sandbox.NetworkNone, sandbox.NetworkRestricted, sandbox.NetworkFull)
}

// over overrides the settings of a file with the given flags.
func (e *environmentFlags) over(f *pflag.FlagSet, to *sandbox.PutEnvironment) {
	for name, set := range map[string]func(){
		"image":       func() { to.Image = e.spec.Image },
		"image-pull":  func() { to.ImagePull = e.spec.ImagePull },
		"type":        func() { to.Type = e.spec.Type },
		"backend":     func() { to.Backend = e.spec.Backend },
		"network":     func() { to.Network = e.spec.Network },
		"memory-mb":   func() { to.Resources.MemoryMB = e.spec.Resources.MemoryMB },
		"cpu-millis":  func() { to.Resources.CPUMillis = e.spec.Resources.CPUMillis },
		"ttl":         func() { to.TTL = sandbox.Duration(e.ttl) },
		"sleep-after": func() { d := sandbox.Duration(e.sleepAfter); to.SleepAfter = &d },
		"labels":      func() { to.Labels = e.spec.Labels },
		"env":         func() { to.Env = e.spec.Env },
		"create-only": func() { to.CreateOnly = e.spec.CreateOnly },
	} {
		if f.Changed(name) {
			set()
		}
	}
}

// readEnvironment decodes a file of settings. Errors: Invalid, naming an unknown field.
func readEnvironment(stdin io.Reader, name string, to *sandbox.PutEnvironment) error {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return exit.Usagef("--file: %w", err)
		}
		defer func() { _ = f.Close() }() // only read
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxEnvironmentFile))
	if err != nil {
		return exit.Usagef("--file %s: %w", name, err)
	}
	var fields any // JSON is YAML
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return exit.Usagef("--file %s: %w", name, err)
	}
	if text, err = json.Marshal(fields); err != nil {
		return exit.Usagef("--file %s: a key is not a string: put quotes around it", name)
	}
	if err := strictjson.Err(strictjson.Decode(text, to)); err != nil {
		return exit.Usagef("--file %s: %w; GET /openapi.json describes the fields of PutEnvironment", name, err)
	}
	return nil
}
