package dashboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/reference"
)

// referencePath is the path of the API reference. Like the OpenAPI document, it needs no login.
const referencePath = "/docs"

// renderReference renders the page of the API reference. It takes 0.1 s, and changes only with the program.
func (d *Dashboard) renderReference(document []byte) (asset, error) {
	r, err := reference.Parse(document)
	if err != nil {
		return asset{}, err
	}
	body, err := d.execute("reference", &frame{Title: "API reference", Page: r})
	sum := sha256.Sum256(body)
	return asset{body, hex.EncodeToString(sum[:6])}, err
}

// showReference sends the API reference. Browsers keep it, and ask whether it has changed.
func (d *Dashboard) showReference(w http.ResponseWriter, r *http.Request) {
	secureHeaders(w.Header())
	page, err := d.reference()
	if err != nil {
		d.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", `"`+page.version+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(page.body))
}
