package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
)

// The pages about features of newer CLIs are hand-written, because the CLI that generates the other pages does not
// support them. They must agree with schemas and examples.
func TestPagesWrittenByHandSayWhatSchemasSay(t *testing.T) {
	t.Parallel()
	server, err := providerserver.NewProtocol6WithError(provider.New("test")())()
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	identities, err := server.GetResourceIdentitySchemas(t.Context(), &tfprotov6.GetResourceIdentitySchemasRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range schemas.ListResourceSchemas {
		says := attributesSaid(s.Block)
		for _, a := range identities.IdentitySchemas[name].IdentityAttributes {
			says = append(says, fmt.Sprintf("- `%s` (String) %s", a.Name, a.Description))
		}
		pageSays(t, "list-resources", name, "list-resource.tfquery.hcl", says)
	}
	for name, s := range schemas.ActionSchemas {
		pageSays(t, "actions", name, "action.tf", attributesSaid(s.Schema.Block))
	}
}

// Pages contain the files that they show, not the directives that include them.
func TestPagesAreRendered(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*/*.md")
	if err != nil || len(pages) < 25 {
		t.Fatalf("found %v, %v", pages, err)
	}
	for _, page := range pages {
		if text := read(t, page); strings.Contains(text, "{{ tffile") || strings.Contains(text, "{{ codefile") {
			t.Errorf("%s shows a directive of its template: a template with directives ends in .md.tmpl", page)
		}
	}
}

// The upgrade guide and the changelog have this program's versions.
func TestTheGuideToUpgradesHasTheVersions(t *testing.T) {
	t.Parallel()
	server, err := providerserver.NewProtocol6WithError(provider.New("test")())()
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	version := func(resource string) int64 { return schemas.ResourceSchemas[resource].Version }
	if version("sandbox_environment") != version("sandbox_container_image") {
		t.Error("the guide says that environments and images have one version")
	}
	for page, says := range map[string][]string{
		"../templates/guides/upgrading.md.tmpl": {
			fmt.Sprintf("`%d` for environments and images, `%d` for leases", version("sandbox_environment"), version("sandbox_lease")),
			fmt.Sprintf("its **schema**, `%d`, and its **min_reader**, `%d`", migrations.Newest, migrations.MinReader),
			fmt.Sprintf("ledger … schema %d", migrations.Newest),
			fmt.Sprintf("OK ledger … schema %d", migrations.Newest),
		},
		"../CHANGELOG.md": {fmt.Sprintf("Its schema is %d.", migrations.Newest)},
	} {
		text := read(t, page)
		for _, s := range says {
			if !strings.Contains(text, s) {
				t.Errorf("%s does not say %q", page, s)
			}
		}
	}
}

func attributesSaid(b *tfprotov6.SchemaBlock) []string {
	said := []string{b.Description}
	for _, a := range b.Attributes {
		said = append(said, fmt.Sprintf("- `%s` (String) %s", a.Name, a.Description))
	}
	return said
}

func pageSays(t *testing.T, folder, name, example string, says []string) {
	t.Helper()
	page := read(t, "../docs", folder, strings.TrimPrefix(name, "sandbox_")+".md")
	says = append(says, "```terraform\n"+read(t, "../examples", folder, name, example)+"```")
	unfolded := strings.ReplaceAll(page, "\n", " ")
	for _, s := range says {
		if !strings.Contains(unfolded, strings.ReplaceAll(s, "\n", " ")) {
			t.Errorf("the page of %s does not say\n%s", name, s)
		}
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
