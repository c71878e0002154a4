package provider_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// snippet is a code block in a guide or the README.
type snippet struct {
	where, code string
}

// snippets returns the code blocks of a language in the README and all guides.
func snippets(t *testing.T, language string) (all []snippet) {
	t.Helper()
	files, err := filepath.Glob("../templates/guides/*")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d guides (%v)", len(files), err)
	}
	block := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$")
	for _, file := range append(files, "../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			head, _, _ := strings.Cut(m[1], "\n")
			all = append(all, snippet{name + ": " + head, m[1]})
		}
	}
	return all
}

// foreign are blocks that this provider cannot validate: an earlier syntax, and another provider's resources.
var foreign = []string{"upgrading: network {", "from-docker-container: removed {", "from-docker-container: moved {"}

// The configuration in guides is valid. A partial configuration belongs in an environment.
func TestAccTerraformOfGuidesIsValid(t *testing.T) {
	t.Parallel()
	if os.Getenv("TF_ACC") == "" {
		t.Skip("set TF_ACC=1: it runs Terraform")
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	whole := regexp.MustCompile(`(?m)^(resource|data|provider|terraform|variable|output) `)
	seen := 0
	for _, s := range snippets(t, "terraform") {
		if slices.Contains(foreign, s.where) {
			seen++
			continue
		}
		t.Run(s.where, func(t *testing.T) {
			t.Parallel()
			code := s.code
			if !whole.MatchString(code) {
				code = "resource \"sandbox_environment\" \"shown\" {\n  name  = \"shown\"\n  image = \"player\"\n" + code +
					secretsOf(code) + "}\n"
			}
			if !strings.Contains(code, "required_providers") {
				code = "terraform {\n  required_providers {\n    sandbox = { source = \"sandbox-lease/sandbox\" }\n  }\n}\n" + code
			}
			for _, v := range regexp.MustCompile(`\bvar\.(\w+)`).FindAllStringSubmatch(code, -1) {
				if declared := "variable \"" + v[1] + "\""; !strings.Contains(code, declared) {
					code += declared + " {}\n"
				}
			}
			tf := providertest.NewMirroredCLI(t, path)
			tf.Write("main.tf", code)
			if out, err := tf.Script("terraform init -no-color && terraform validate -no-color"); err != nil {
				t.Errorf("%v\n%s\n%s", err, code, out)
			}
		})
	}
	if seen != len(foreign) {
		t.Errorf("%d of %d blocks are as they are named", seen, len(foreign))
	}
}

// secretsOf declares the secrets that a partial environment names.
func secretsOf(code string) string {
	declared := ""
	for _, m := range regexp.MustCompile(`secrets? += \[?"(\w+)"`).FindAllStringSubmatch(code, -1) {
		declared += m[1] + " = { value_wo = \"shown\", value_wo_version = 1 }\n"
	}
	if declared == "" {
		return ""
	}
	return "secrets = {\n" + declared + "}\n"
}

// Environment settings and conditions that guides show in JSON match the API. Complete ones are valid.
func TestJSONOfGuidesIsTheAPIs(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, s := range snippets(t, "json") {
		code, whole := s.code, strings.Contains(s.code, `"image"`)
		switch {
		case strings.HasPrefix(code, `"`):
			code, whole = "{"+code+"}", false
		case strings.Contains(code, `"timestamp"`):
			seen++
			var c sandbox.Condition
			if err := errors.Join(decode(code, &c), c.Validate()); err != nil {
				t.Errorf("%s: %v", s.where, err)
			}
			continue
		case !whole:
			continue // an answer, or a message in an example
		}
		seen++
		var put sandbox.PutEnvironment
		if err := decode(code, &put); err != nil {
			t.Errorf("%s: %v", s.where, err)
			continue
		}
		put = put.WithDefaults()
		if put.ID == "" {
			put.ID = "shown"
		}
		if err := put.Validate(); whole && err != nil {
			t.Errorf("%s: %v", s.where, err)
		}
	}
	if seen < 5 {
		t.Errorf("%d blocks were looked at", seen)
	}
}

// decode reads JSON and refuses unknown fields.
func decode(code string, into any) error {
	d := json.NewDecoder(strings.NewReader(code))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// "$${" is how HCL writes a literal "${". Before an amount in dollars, no example means that.
func TestNoExamplePrintsATemplateAsItStands(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, root := range []string{"../examples", "../templates"} {
		err := filepath.WalkDir(root, func(file string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".tf", ".md", ".tmpl"}, filepath.Ext(file)) {
				return err
			}
			if seen++; strings.Contains(read(t, file), "$${") {
				t.Errorf("%s has $${, which is printed as it stands: use format(\"$%%s\", …)", file)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if seen < 60 {
		t.Errorf("%d files were looked at", seen)
	}
}
