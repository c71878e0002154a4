package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tool is a set of programs and files that an image must have together.
type Tool struct {
	// Programs are in the PATH of the image.
	Programs []string
	// Files are alternative paths in different distributions. The image has one of them.
	Files []string
}

// builtinTools are the tools that an environment may name, by name.
var builtinTools = map[string]Tool{
	"bash":     {Programs: []string{"bash"}},
	"claude":   {Programs: []string{"claude"}},
	"codex":    {Programs: []string{"codex"}},
	"curl":     {Programs: []string{"curl"}},
	"gh":       {Programs: []string{"gh", "git"}},
	"git":      {Programs: []string{"git"}},
	"go":       {Programs: []string{"go", "gofmt"}},
	"jq":       {Programs: []string{"jq"}},
	"node":     {Programs: []string{"node"}},
	"npm":      {Programs: []string{"node", "npm", "npx"}},
	"opencode": {Programs: []string{"opencode"}},
	"pip":      {Programs: []string{"python3", "pip3"}},
	"python":   {Programs: []string{"python3"}},
	"ripgrep":  {Programs: []string{"rg"}},
	"uv":       {Programs: []string{"uv", "uvx"}},
	// Programs that verify TLS servers read these. The list is from crypto/x509 of Go 1.26.
	"certificates": {Files: []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
		"/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
	}},
}

// BuiltinToolNames returns the names of all tools, in order.
func BuiltinToolNames() []string { return slices.Sorted(maps.Keys(builtinTools)) }

// BuiltinTool returns a tool by its name, the zero value for an unknown one.
func BuiltinTool(name string) Tool { return builtinTools[name] }

// toolFields returns the problems of the tools.
func (s EnvironmentSpec) toolFields() (f []Field) {
	for i, name := range s.BuiltinTools {
		at := fmt.Sprintf("builtin_tools[%d]", i)
		if _, known := builtinTools[name]; !known {
			f = append(f, Field{at, fmt.Sprintf("%q is none of the tools: %s", name, strings.Join(BuiltinToolNames(), ", "))})
		}
		if slices.Contains(s.BuiltinTools[:i], name) {
			f = append(f, Field{at, fmt.Sprintf("%q is there twice", name)})
		}
	}
	return f
}

// ImagePull says whether the backend's engine pulls missing images.
type ImagePull string

// PullNever is the default: a missing image is an error. PullMissing pulls missing images, also those of companions,
// from their registry when the environment is created or changed. A tag that moves is not pulled again.
const (
	PullNever   ImagePull = "never"
	PullMissing ImagePull = "missing"
)

func (p ImagePull) fields() []Field {
	if p != PullNever && p != PullMissing {
		return []Field{{"image_pull", fmt.Sprintf("must be never or missing, not %q", p)}}
	}
	return nil
}

// Images returns the images of the environment's containers: first the sandboxes' image, then those of companions by
// name.
func (s EnvironmentSpec) Images() []string {
	images := []string{s.Image}
	for _, name := range s.Companions.Names() {
		images = append(images, s.Companions[name].Image)
	}
	return images
}
