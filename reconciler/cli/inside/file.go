package inside

import (
	"errors"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func files(c *console.Console) *cobra.Command {
	var ref sandbox.LeaseRef
	cmd := console.Group("file", "Work on the files of a lease's sandbox",
		listFiles(c, &ref), statFile(c, &ref), readFile(c, &ref), writeFile(c, &ref), removeFile(c, &ref), downloadFiles(c,
			&ref),
		uploadFiles(c, &ref))
	cmd.Long = `Work on the files of a lease's sandbox. Paths must be in /workspace or /data. Relative paths start at
/workspace. Each command wakes the sandbox if needed and counts as activity. cp copies files and directories from and
to this machine.`
	cmd.PersistentFlags().Int64Var(&ref.Generation, "generation", 0, "fail unless the lease has this generation")
	return cmd
}

// onPath returns a command that takes a lease and a path in its sandbox.
func onPath(c *console.Console, ref *sandbox.LeaseRef, name, short string,
	work func(cmd *cobra.Command, s service.Service, path string) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " <lease> <path>",
		Short: short,
		Args:  console.Exactly("lease", "path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			ref.ID = id
			return work(cmd, service, args[1])
		},
	}
}

func listFiles(c *console.Console, ref *sandbox.LeaseRef) *cobra.Command {
	return onPath(c, ref, "list", "List a directory",
		func(cmd *cobra.Command, s service.Service, path string) error {
			all, err := console.EveryPage(func(after string) ([]sandbox.FileInfo, error) {
				return s.ListFiles(cmd.Context(), *ref, sandbox.FileQuery{Path: path, After: after, Limit: sandbox.MaxPage})
			}, func(f sandbox.FileInfo) string { return f.Name })
			if err != nil {
				return err
			}
			page := wire.FilePage{Files: make([]wire.FileInfo, len(all))}
			for i, f := range all {
				page.Files[i] = wire.FileInfoOf(f)
			}
			return c.Print(cmd, page, func(t *table.Table) { fillFiles(t, page.Files) })
		})
}

func statFile(c *console.Console, ref *sandbox.LeaseRef) *cobra.Command {
	return onPath(c, ref, "stat", "Describe a file, directory or symlink",
		func(cmd *cobra.Command, s service.Service, path string) error {
			info, err := s.StatFile(cmd.Context(), *ref, path)
			if err != nil {
				return err
			}
			file := wire.FileInfoOf(info)
			return c.Print(cmd, file, func(t *table.Table) { fillFiles(t, []wire.FileInfo{file}) })
		})
}

func fillFiles(t *table.Table, files []wire.FileInfo) {
	t.Head(table.Flex("NAME"), table.Col("MODE"), table.Col("TYPE"), table.Num("BYTES"), table.Col("MODIFIED"),
		table.Flex("TARGET"))
	for _, f := range files {
		size := ""
		if f.Type == sandbox.FileRegular {
			size = strconv.FormatInt(f.Size, 10)
		}
		t.Row(shown(f.Name, f.NameEncoding), f.Mode, string(f.Type), size, t.When(f.ModifiedAt),
			shown(f.Target, f.TargetEncoding))
	}
}

// shown formats a name for a table. A name that is not UTF-8 stays in base64 and is marked.
func shown(name, encoding string) string {
	if encoding == "" {
		return name
	}
	return name + " (" + encoding + ")"
}

func readFile(c *console.Console, ref *sandbox.LeaseRef) *cobra.Command {
	var f sandbox.FileRead
	cmd := onPath(c, ref, "read", "Print a file",
		func(cmd *cobra.Command, s service.Service, path string) error {
			f.Path = path
			content, err := s.ReadFile(cmd.Context(), *ref, f)
			if err != nil {
				return err
			}
			return copyAndClose(cmd.OutOrStdout(), content)
		})
	cmd.Flags().Int64Var(&f.MaxBytes, "max-bytes", sandbox.MaxFileBytes, "fail if the file is larger")
	return cmd
}

func copyAndClose(to io.Writer, from io.ReadCloser) error {
	_, err := io.Copy(to, from)
	return errors.Join(err, from.Close())
}

func writeFile(c *console.Console, ref *sandbox.LeaseRef) *cobra.Command {
	var (
		w    sandbox.FileWrite
		mode string
	)
	cmd := onPath(c, ref, "write", "Write standard input to a file, atomically",
		func(cmd *cobra.Command, s service.Service, path string) error {
			var err error
			if w.Mode, err = wire.ParseFileMode(mode); err != nil {
				return exit.Usagef("--%w", err)
			}
			w.Path = path
			return s.WriteFile(cmd.Context(), *ref, w, cmd.InOrStdin())
		})
	cmd.Flags().StringVar(&mode, "mode", wire.FileMode(sandbox.DefaultFileMode), "permissions of the file, octal")
	cmd.Flags().Int64Var(&w.MaxBytes, "max-bytes", sandbox.MaxFileBytes, "fail if the content is larger")
	return cmd
}

func removeFile(c *console.Console, ref *sandbox.LeaseRef) *cobra.Command {
	var f sandbox.FileRemoval
	cmd := onPath(c, ref, "delete", "Delete a file, a symlink or an empty directory",
		func(cmd *cobra.Command, s service.Service, path string) error {
			f.Path = path
			return s.RemoveFile(cmd.Context(), *ref, f)
		})
	cmd.Flags().BoolVarP(&f.Recursive, "recursive", "r", false, "delete a directory and its contents")
	return cmd
}

func downloadFiles(c *console.Console, ref *sandbox.LeaseRef) *cobra.Command {
	cmd := onPath(c, ref, "download", "Write a file or directory to standard output, as a tar stream",
		func(cmd *cobra.Command, s service.Service, path string) error {
			archive, err := s.ReadFiles(cmd.Context(), *ref, path)
			if err != nil {
				return err
			}
			return copyAndClose(cmd.OutOrStdout(), archive)
		})
	cmd.Example = `  sandbox file download ada@catan-7 results | tar -x`
	return cmd
}

func uploadFiles(c *console.Console, ref *sandbox.LeaseRef) *cobra.Command {
	cmd := onPath(c, ref, "upload", "Unpack a tar stream from standard input into a directory",
		func(cmd *cobra.Command, s service.Service, dir string) error {
			return s.WriteFiles(cmd.Context(), *ref, dir, cmd.InOrStdin())
		})
	cmd.Example = `  tar -c maps | sandbox file upload ada@catan-7 /workspace`
	return cmd
}
