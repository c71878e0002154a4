package lifecycle_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"testing"
)

// point is a line of the table of hooks in the documentation of the package.
var point = regexp.MustCompile(`(?m)^\t([A-Z]\w+) +\S.* {2,}\S`)

func TestTheDocumentationNamesTheHooksThatThereAre(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	doc, err := parser.ParseFile(files, "doc.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	hooks, err := parser.ParseFile(files, "hooks.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var documented, declared, interfaces, listed []string
	for _, m := range point.FindAllStringSubmatch(doc.Doc.Text(), -1) {
		documented = append(documented, m[1])
	}
	ast.Inspect(hooks, func(n ast.Node) bool {
		typ, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		switch is := typ.Type.(type) {
		case *ast.InterfaceType:
			interfaces = append(interfaces, typ.Name.Name)
			for _, m := range is.Methods.List {
				declared = append(declared, m.Names[0].Name)
			}
		case *ast.FuncType:
			declared = append(declared, typ.Name.Name)
		case *ast.StructType:
			if typ.Name.Name != "Hooks" {
				return true
			}
			for _, f := range is.Fields.List {
				listed = append(listed, f.Type.(*ast.ArrayType).Elt.(*ast.Ident).Name)
			}
		}
		return true
	})
	same := func(what string, got, want []string) {
		t.Helper()
		slices.Sort(got)
		slices.Sort(want)
		if want = slices.Compact(want); !slices.Equal(got, want) {
			t.Errorf("%s are %q, want %q", what, got, want)
		}
	}
	same("the points of doc.go", documented, declared)
	same("the fields of Hooks", listed, interfaces)
	if len(declared) < 15 {
		t.Errorf("hooks.go declares %d points: the test finds too few", len(declared))
	}
}
