// Command cloudflare-local runs a Cloudflare account on this machine until it is interrupted. An API accepts
// deployments, and the real Workers runtime runs them with containers on the local Docker Engine. The account's objects
// end with it. Run it from the root of the repository, with the Worker built.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localaccount"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8788", "the API's `address`")
	exports := flag.String("exports", "", "also write the exports to this `file`, once the account answers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *exports); err != nil {
		fmt.Fprintln(os.Stderr, "cloudflare-local:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, exports string) (err error) {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	engine := filepath.Join(root, ".tmp", "cloudflare-local")
	if err := harness.StartEngine(ctx, engine); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, harness.StopEngine(context.WithoutCancel(ctx), engine)) }()
	state, err := os.MkdirTemp("", "cloudflare-local")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(state)) }()
	account, err := localaccount.Start(ctx, localaccount.Config{
		Worker: filepath.Join(root, "internal", "executor", "cloudflare", "worker"), State: state, Listen: listen,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, account.Close()) }()
	lines := fmt.Sprintf("export %s=%s\nexport %s=%s\nexport %s=%s\n",
		deploy.EnvAccount, localaccount.ID, deploy.EnvToken, string(account.Token), deploy.EnvURL, account.URL)
	fmt.Printf(greeting, lines, harness.Binary)
	if exports != "" {
		if err := wholefile.Write(exports, []byte(lines), 0o600); err != nil {
			return err
		}
	}
	<-ctx.Done()
	fmt.Println("\nThe account ends, with its containers.")
	return nil
}

const greeting = `A Cloudflare account runs on this machine, until Ctrl-C. It keeps nothing: started again, it is empty.
In another shell:

%s
Then a configuration with backend = "cloudflare" goes there, by a reconciler or by Terraform alone:

%s serve --cloudflare-account "$CLOUDFLARE_ACCOUNT_ID"
terraform apply
`
