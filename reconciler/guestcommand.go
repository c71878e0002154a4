package reconciler

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// NewGuestCommand returns the command `reconciler guest`.
func NewGuestCommand() *cobra.Command {
	var arch string
	cmd := &cobra.Command{
		Use:   "guest FILE",
		Short: "Write the program that is process 1 of a sandbox to a file, for an image for Cloudflare",
		Long: `Write the program that is process 1 of a sandbox to a file that there is not yet. Docker engines are given it by
the reconciler; an image for Cloudflare has it as /.sandbox/guest, of the release that serves.`,
		Args:          cobra.ExactArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := guest.Binary(arch)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755) //nolint:gosec // it is a program
			if err != nil {
				return sandbox.Errorf(sandbox.Invalid, "writing the guest: %w", err)
			}
			_, err = f.Write(program)
			if closeErr := f.Close(); err == nil {
				err = closeErr
			}
			if err != nil {
				return sandbox.Errorf(sandbox.Unavailable, "writing the guest to %s: %w", args[0], err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&arch, "arch", "amd64", "architecture: amd64, which Cloudflare has, or arm64")
	return cmd
}
