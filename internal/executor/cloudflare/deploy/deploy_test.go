package deploy_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestADeploymentIsMadeOnceAndLeftAloneThen(t *testing.T) {
	t.Parallel()
	w, d := newWorld(t), wanted()
	site := w.deploy(d)
	if want := "https://" + d.Name + ".local.workers.dev"; site.URL != want {
		t.Errorf("it answers at %q, want %q", site.URL, want)
	}
	if site.DatabaseID == "" || site.NamespaceID == "" || site.ApplicationID == "" || site.VersionID == "" {
		t.Errorf("it lacks ids: %+v", site)
	}
	w.wantDeployed(d)
	w.forget(nil)
	again := w.deploy(d)
	if changes := w.changes(); len(changes) > 0 {
		t.Errorf("deploying the same again changes something: %q", changes)
	}
	if again.VersionID != site.VersionID || again.URL != site.URL || len(again.Missing) > 0 {
		t.Errorf("deploying the same again gives %+v, first %+v", again, site)
	}
}

// otherwise is a deployment in which every setting has changed.
func otherwise() cloudflare.Deployment {
	d := wanted()
	d.Script, d.SigningKey, d.Variables = []byte("export default {} // second"), "another-key-of-this-test",
		map[string]string{"FLAVOUR": "salted"}
	d.Image = strings.ReplaceAll(d.Image, "0a", "0b")
	d.Resources, d.MaxInstances,
		d.RolloutGrace = sandbox.Resources{CPUMillis: 2000, MemoryMB: 6144, DiskMB: 10000}, 1, time.Hour
	return d
}

func TestEachChangeIsFoundAndMade(t *testing.T) {
	t.Parallel()
	to := otherwise()
	for setting, change := range map[string]func(*cloudflare.Deployment){
		"script":        func(d *cloudflare.Deployment) { d.Script = to.Script },
		"signing_key":   func(d *cloudflare.Deployment) { d.SigningKey = to.SigningKey },
		"variables":     func(d *cloudflare.Deployment) { d.Variables = to.Variables },
		"image":         func(d *cloudflare.Deployment) { d.Image = to.Image },
		"resources":     func(d *cloudflare.Deployment) { d.Resources = to.Resources },
		"max_instances": func(d *cloudflare.Deployment) { d.MaxInstances = to.MaxInstances },
		"rollout_grace": func(d *cloudflare.Deployment) { d.RolloutGrace = to.RolloutGrace },
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			w, d := newWorld(t), wanted()
			first := w.deploy(d)
			change(&d)
			if differences := d.Differences(w.find(d.Name)); len(differences) != 1 || differences[0].Setting != setting {
				t.Errorf("differences are %v", differences)
			}
			w.forget(nil)
			second := w.deploy(d)
			w.wantDeployed(d)
			ofWorker := slices.Contains([]string{"script", "signing_key", "variables"}, setting)
			if uploaded := second.VersionID != first.VersionID; uploaded != ofWorker {
				t.Errorf("the Worker was uploaded: %t, want %t", uploaded, ofWorker)
			}
			rolledOut := slices.Contains(w.changes(), "POST /containers/applications/"+second.ApplicationID+"/rollouts")
			if rolledOut == ofWorker {
				t.Errorf("a rollout was started: %t, want %t", rolledOut, !ofWorker)
			}
			if second.NamespaceID != first.NamespaceID || second.ApplicationID != first.ApplicationID {
				t.Errorf("sandboxes are lost: was %+v, is %+v", first, second)
			}
		})
	}
}

// A deployment, new or a change, may break off at any request. The next deployment completes it, and a deletion removes
// all of it. The same holds for a deletion that breaks off.
func TestWhatBreaksOffAnywhereIsCompletedOrRemoved(t *testing.T) {
	t.Parallel()
	for kind, before := range map[string]func(*world){
		"a new one": func(*world) {},
		"a change":  func(w *world) { w.deploy(wanted()) },
	} {
		for name, first := range map[string]localapi.Fault{"down": localapi.Down, "answer lost": localapi.Lost} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				run := func(do func(*world) error, then func(*world)) {
					start := func() *world { w := newWorld(t); before(w); w.forget(nil); return w }
					whole := start()
					whole.must(do(whole))
					for n := range whole.requests() {
						w := start()
						w.forget(func(i int, _ *http.Request) localapi.Fault {
							switch {
							case i == n:
								return first
							case i > n:
								return localapi.Down
							}
							return localapi.None
						})
						if err := do(w); err != nil && !sandbox.IsRetryable(err) {
							t.Errorf("request %d: the error does not allow a retry: %v", n, err)
						}
						w.forget(nil)
						then(w)
						if t.Failed() {
							t.Fatalf("after breaking off at request %d", n)
						}
					}
				}
				d := otherwise()
				deploy := func(w *world) error { _, err := w.deployer.Deploy(w.Context(), d); return err }
				remove := func(w *world) error { return w.deployer.Delete(w.Context(), d.Name) }
				run(deploy, func(w *world) { w.deploy(d); w.wantDeployed(d) })
				run(deploy, func(w *world) { w.must(remove(w)); w.wantNothing() })
				run(remove, func(w *world) { w.must(remove(w)); w.wantNothing() })
			})
		}
	}
}

func TestAPartThatWasDeletedIsFoundAndMadeAgain(t *testing.T) {
	t.Parallel()
	d := wanted()
	for missing, take := range map[string]func(*world, cloudflare.Site){
		"database settings": func(w *world, s cloudflare.Site) {
			w.request(http.MethodDelete, "/d1/database/"+s.DatabaseID, "")
		},
		"bucket": func(w *world, s cloudflare.Site) { w.request(http.MethodDelete, "/r2/buckets/"+s.Name, "") },
		"application": func(w *world, s cloudflare.Site) {
			w.request(http.MethodDelete, "/containers/applications/"+s.ApplicationID, "")
		},
		// Its application stays behind, with a namespace that is gone.
		"worker application route": func(w *world, s cloudflare.Site) {
			w.request(http.MethodDelete, "/workers/scripts/"+s.Name, "")
		},
		"route": func(w *world, s cloudflare.Site) {
			w.request(http.MethodPost, "/workers/scripts/"+s.Name+"/subdomain", `{"enabled":false}`)
		},
		"rollout": func(w *world, s cloudflare.Site) {
			w.request(http.MethodPatch, "/containers/applications/"+s.ApplicationID, `{}`)
		},
	} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			take(w, w.deploy(d))
			site := w.find(d.Name)
			var got []string
			for _, part := range site.Missing {
				got = append(got, string(part))
			}
			if strings.Join(got, " ") != missing {
				t.Errorf("missing are %q, want %q", got, missing)
			}
			w.deploy(d)
			w.wantDeployed(d)
		})
	}
}

func TestAnotherImageIsDrift(t *testing.T) {
	t.Parallel()
	w, d := newWorld(t), wanted()
	site := w.deploy(d)
	other := strings.ReplaceAll(d.Image, "0a", "0c")
	w.request(http.MethodPatch, "/containers/applications/"+site.ApplicationID,
		fmt.Sprintf(`{"configuration":{"image":%q,"instance_type":"basic"},"max_instances":9}`, other))
	var got []string
	for _, difference := range d.Differences(w.find(d.Name)) {
		got = append(got, difference.Setting+" "+difference.Found)
	}
	if want := []string{
		"rollout absent", "image " + other, "resources basic", "max_instances 9",
	}; !slices.Equal(got, want) {
		t.Errorf("differences are %q, want %q", got, want)
	}
	w.deploy(d)
	w.wantDeployed(d)
}

func TestADeletionTakesWhatIsInTheBucket(t *testing.T) {
	t.Parallel()
	w, d := newWorld(t), wanted()
	w.deploy(d)
	for i := range 30 {
		w.request(http.MethodPut, fmt.Sprintf("/r2/buckets/%s/objects/data/%d/a%%20b%%3F.tar", d.Name, i), "state")
	}
	w.must(w.deployer.Delete(t.Context(), d.Name))
	w.wantNothing()
	w.must(w.deployer.Delete(t.Context(), d.Name))
	_, err := w.deployer.Find(t.Context(), d.Name)
	w.wantCode(err, sandbox.NotFound)
}

func TestAWorkerThatIsNotOursIsNeverChanged(t *testing.T) {
	t.Parallel()
	w, d := newWorld(t), wanted()
	const form = "--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n{\"main_module\":\"x.js\"}\r\n--b\r\n" +
		"Content-Disposition: form-data; name=\"x.js\"; filename=\"x.js\"\r\n\r\nexport default {}\r\n--b--\r\n"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
		w.url+"/accounts/"+account+"/workers/scripts/"+d.Name, strings.NewReader(form))
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	answer, err := http.DefaultClient.Do(r)
	w.must(err)
	w.must(answer.Body.Close())
	w.forget(nil)
	_, err = w.deployer.Deploy(t.Context(), d)
	w.wantCode(err, sandbox.Conflict)
	_, err = w.deployer.Find(t.Context(), d.Name)
	w.wantCode(err, sandbox.Conflict)
	w.wantCode(w.deployer.Delete(t.Context(), d.Name), sandbox.Conflict)
	w.wantCode(w.deployer.Delete(t.Context(), "production"), sandbox.Invalid)
	if changes := w.changes(); len(changes) > 0 {
		t.Errorf("it was touched: %q", changes)
	}
}

func TestDeploymentsOfOneAccountDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	w, a, b := newWorld(t), wanted(), wanted()
	b.Name = a.Name + "x" // the API finds databases by a part of their name
	w.deploy(b)
	w.deploy(a)
	w.must(w.deployer.Delete(t.Context(), b.Name))
	w.wantDeployed(a)
}

func TestALedgersDeploymentsAreListedWithWhereTheyAnswer(t *testing.T) {
	t.Parallel()
	w, a, b, other := newWorld(t), wanted(), wanted(), wanted()
	b.Name = cloudflare.DeploymentName("ledgerofdeploy22", "catan-8")
	other.Name = cloudflare.DeploymentName("anotherledger222", "catan-7")
	w.deploy(a)
	w.deploy(b)
	w.deploy(other)
	w.request(http.MethodPost, "/workers/scripts/"+b.Name+"/subdomain", `{"enabled":false}`)
	w.deployer.Doubt(b.Name)
	sites, err := w.deployer.List(t.Context(), "ledgerofdeploy22")
	w.must(err)
	got := map[string]string{}
	for _, s := range sites {
		got[s.Name] = s.URL
	}
	if want := map[string]string{a.Name: "https://" + a.Name + ".local.workers.dev", b.Name: ""}; !maps.Equal(got, want) {
		t.Errorf("listed are %v, want %v", got, want)
	}
	w.forget(func(int, *http.Request) localapi.Fault { return localapi.Down })
	_, err = w.deployer.List(t.Context(), "ledgerofdeploy22")
	w.wantCode(err, sandbox.Unavailable)
}
