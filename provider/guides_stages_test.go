package provider_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

// stage is the setup before a guide's first command, and the cleanup after its last.
type stage struct {
	// reconciler says that the guide expects a running reconciler. around configures it, and returns variables.
	reconciler bool
	around     func(w *providertest.World, c *reconciler.Config) []string
	// before and after are shell scripts.
	before, after string
}

// stages are the stages of all guides that the tests run.
var stages = map[string]stage{
	"getting-started":       {},
	"cost-review":           {},
	"upgrading":             {},
	"from-docker-container": {},
	"http":                  {},
	"backup":                {},
	"costs":                 {after: "sandbox env delete catan-7\n"},
	"state":                 {after: "sandbox env delete rpg-1\n"},
	"README":                {after: "terraform destroy -auto-approve\nsandbox env delete catan-7\n"},
	"ci":                    {reconciler: true},
	"lifecycle": {
		reconciler: true,
		before: "sandbox env apply catan-7 --image busybox --network none --labels season=3\n" +
			"sandbox lease create did:plc:abc catan-7\n",
	},
	"drift": {
		reconciler: true,
		before: `cat >main.tf <<'EOF'
` + required + `
variable "image" {}
resource "sandbox_environment" "catan" {
  name  = "catan-7"
  image = var.image
}
resource "sandbox_lease" "ann" {
  environment_id = sandbox_environment.catan.id
  agent_did      = "did:plc:ann"
}
EOF
terraform init
terraform apply -auto-approve
`,
	},
	"webhook": {
		reconciler: true,
		before: "cp $SECRETS webhook-secrets\nsandbox env apply catan-7 --image busybox --network none\n" +
			"sandbox lease create did:plc:ann catan-7\n",
	},
	"agents": {
		reconciler: true, around: withAgent,
		before: callsModels("catan-answering") + "sandbox lease create did:plc:ada catan-answering\n" +
			"sandbox cp $CHAT did:plc:ada::catan-answering:/workspace/chat\n" +
			"sandbox process start did:plc:ada::catan-answering chat --restart --port 8080 --description 'Answers messages.' \\\n" +
			"  --env MODEL=gpt-5-mini -- /workspace/chat\n",
	},
	"models": {
		reconciler: true, around: withModel,
		before: callsModels("catan-talking") + "sandbox lease create did:plc:ada catan-talking\n" +
			"sandbox exec did:plc:ada::catan-talking -- sh -c 'unset http_proxy; wget -q -O - --post-data " +
			`"{\"model\": \"gpt-5-mini\", \"messages\": []}" $OPENAI_BASE_URL/chat/completions` + "'\n" +
			"until sandbox llm-call list -q | grep -q .; do sleep 0.2; done\n", // recorded within 5 s
	},
	"operations": {
		before: `cat >/etc/sandbox/reconciler.yaml <<EOF
ledger: sqlite:///var/lib/sandbox/ledger.db
webhook-secret-file: /etc/sandbox/webhook-secrets
EOF
sandbox serve --generate-credentials --config /etc/sandbox/reconciler.yaml &
` + ready,
	},
	"workspaces": {
		reconciler: true, around: withRepository,
		before: `sandbox env apply --file - <<EOF
{"id": "coding-fix", "image": "busybox", "network": "none", "workspace": {"git": {"url": "$REPOSITORY"}, "path": "/workspace/app"}}
EOF
sandbox lease create did:plc:ann coding-fix
mkdir work
sandbox cp did:plc:ann::coding-fix:/workspace/app/.git work/.git
git -C work commit --quiet --allow-empty --message 'the fix'
sandbox cp work/.git did:plc:ann::coding-fix:/workspace/app
git clone --quiet $REPOSITORY team
cd team
`,
		after: "git log --oneline sandbox/did-plc-ann/1 | grep 'the fix'\n" + ready,
	},
}

// ready waits until the reconciler that a guide started is ready.
const ready = "until curl -fsS http://127.0.0.1:8787/readyz >/dev/null 2>&1; do sleep 0.1; done\n"

// withModel starts an LLM that answers every question, on the engine's bridge. Gateways reach it as model.test.
func withModel(w *providertest.World, c *reconciler.Config) []string {
	w.Helper()
	bridge, err := w.Docker.NetworkInspect(w.Context(), dockerapi.NetworkBridge, dockerapi.NetworkInspectOptions{})
	w.Must(err)
	address := bridge.IPAM.Config[0].Gateway
	l, err := (&net.ListenConfig{}).Listen(w.Context(), "tcp", net.JoinHostPort(address, "0"))
	w.Must(err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	w.Must(s.Listener.Close())
	s.Listener = l
	s.Start()
	w.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	c.Docker.Gateway.Hosts = []string{"model.test:" + address}
	_, port, err := net.SplitHostPort(l.Addr().String())
	w.Must(err)
	return []string{"MODEL_URL=http://model.test:" + port, "MODEL_SUBNET=" + bridge.IPAM.Config[0].Subnet}
}

// withAgent adds the agent of the examples and its model.
func withAgent(w *providertest.World, c *reconciler.Config) []string {
	w.Helper()
	chat := filepath.Join(w.TempDir(), "chat")
	build := exec.CommandContext(w.Context(), "go", "build", "-trimpath", "-o", chat, "../examples/agents/chat")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		w.Fatalf("build the agent: %v\n%s", err, out)
	}
	return append(withModel(w, c), "CHAT="+chat)
}

// answer writes the model's answer, as a stream if the request asks for one.
func answer(w http.ResponseWriter, r *http.Request) {
	var question struct {
		Stream bool `json:"stream"`
	}
	if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	const said, usage = "Ada's.", `"usage":{"prompt_tokens":12,"completion_tokens":6,"total_tokens":18}`
	if !question.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":%q}}],%s}`, said, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n"+
		"data: {\"choices\":[],%s}\n\ndata: [DONE]\n\n", said, usage)
}

// callsModels creates an environment with a route to the model.
func callsModels(environment string) string {
	return `sandbox env apply --file - <<EOF
{
  "id": "` + environment + `", "image": "busybox", "network": "restricted", "egress": {"private_cidrs": ["$MODEL_SUBNET"]},
  "secret_values": {"model_key": "sk-of-the-guide"},
  "llm": {"main": {"api": "openai", "credential": "model_key", "upstream": "$MODEL_URL", "models": {"gpt-5-mini":
    {"input_usd_per_million": "0.25", "output_usd_per_million": "2.00"}}, "price_source": "the guide", "prices_as_of": "2026-11-24"}}
}
EOF
`
}

// withRepository starts a Git server from which workspaces may fetch.
func withRepository(w *providertest.World, c *reconciler.Config) []string {
	w.Helper()
	server := gittest.New(w.TB)
	c.Workspaces = reconciler.Workspaces{Allow: []string{server.URL}, Dir: w.TempDir()}
	return []string{
		"REPOSITORY=" + server.Repository("team/app.git", map[string]string{"README.md": "an app"}).URL,
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com",
	}
}

// elsewhere lists blocks of these guides that another test runs, or that need what a test does not have.
var elsewhere = map[string]string{
	"README: curl -fsSL https://github.com/sandbox-lease/terraform-provider-sandbox/releases/latest/download/install.sh | sh": "a release",
	"README: make install                   # the provider, where terraform init finds it":                                    "it installs",
	"operations: sudoedit /etc/sandbox/reconciler.yaml":                                                                       "packages of a release",
	"operations: gpg --verify sandbox_VERSION_SHA256SUMS.sig sandbox_VERSION_SHA256SUMS # after gpg --import release-key.asc": "a release",
	"operations: docker run --detach --name sandbox --restart unless-stopped --network host --read-only --tmpfs /tmp \\":      "the image of a release",
	"operations: Sandbox reconciler 0.1.0 is ready.":                                                                          "reconciler/cli/daemon, on a terminal",
	"operations: # games": "a file of secrets",
}

// others lists guides with commands that other tests run, or that no test can run.
var others = map[string]string{
	"environments": "examples/environments",
	"libraries":    "sdk",
	"security":     "fragments; TestCommandsOfGuidesExist reads them",
}

// TestEveryGuideIsRun: the tests run each guide with commands, or the lists above name the test that does. No exception
// outlives its block.
func TestEveryGuideIsRun(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../templates/guides/*")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d guides (%v)", len(files), err)
	}
	blocks := map[string]bool{}
	for _, name := range append(files, "README") {
		name, _, _ = strings.Cut(filepath.Base(name), ".")
		commands := false
		for _, m := range part.FindAllStringSubmatch(readPage(t, name), -1) {
			first, _, _ := strings.Cut(strings.TrimSpace(m[3]), "\n")
			blocks[name+": "+first] = true
			commands = commands || m[2] == "sh" || m[2] == "shell" || m[2] == "bash" || m[2] == "console"
		}
		_, run := stages[name]
		if run && others[name] != "" || commands != (run || others[name] != "") {
			t.Errorf("%s: commands %v, run %v, by another test %q", name, commands, run, others[name])
		}
	}
	for where := range elsewhere {
		if !blocks[where] {
			t.Errorf("no guide has the block %s", where)
		}
	}
}
