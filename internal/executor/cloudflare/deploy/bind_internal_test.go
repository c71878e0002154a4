package deploy

import (
	"encoding/json"
	"testing"

	"github.com/cloudflare/cloudflare-go/v7/workers"
)

// TestADatabaseIsFoundUnderEitherName: Cloudflare's API has used both names for a database's id.
func TestADatabaseIsFoundUnderEitherName(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		`{"name":"DB","type":"d1","database_id":"the-id"}`, `{"name":"DB","type":"d1","id":"the-id"}`,
	} {
		var b workers.ScriptVersionGetResponseResourcesBinding
		if err := json.Unmarshal([]byte(answer), &b); err != nil {
			t.Fatal(err)
		}
		w := &worker{variables: map[string]string{}}
		w.bind(b)
		if w.database != "the-id" {
			t.Errorf("%s binds database %q", answer, w.database)
		}
	}
}
