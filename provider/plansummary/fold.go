package plansummary

import (
	"fmt"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// If at least folded rows are alike, one row stands for all of them and names the first named.
const (
	folded = 4
	named  = 3
)

// row is a row of a table about one object.
type row struct {
	object *tfjson.ResourceChange
	// alike is equal in rows that one row may stand for, and of names their objects.
	alike, of string
	cells     string // after the object's cell
}

// fold returns the rows of a table, in the order of the first row of each kind.
func fold(rows []row) string {
	var order []string
	groups := map[string][]row{}
	for _, r := range rows {
		if groups[r.alike] == nil {
			order = append(order, r.alike)
		}
		groups[r.alike] = append(groups[r.alike], r)
	}
	text := ""
	for _, key := range order {
		group := groups[key]
		if len(group) >= folded {
			text += fmt.Sprintf("| %s | %s |\n", several(group), group[0].cells)
			continue
		}
		for _, r := range group {
			text += fmt.Sprintf("| %s | %s |\n", code(r.object.Address), r.cells)
		}
	}
	return text
}

// several counts the objects of rows and names the first of them.
func several(group []row) string {
	var names []string
	for _, r := range group[:named] {
		names = append(names, code(r.object.Address))
	}
	return fmt.Sprintf("%d %s: %s and %d more", len(group), group[0].of, strings.Join(names, ", "), len(group)-named)
}

// ofType returns a row that may stand for others of the same type with the same cells.
func ofType(c *tfjson.ResourceChange, cells string) row {
	return row{object: c, alike: c.Type + " | " + cells, of: code(c.Type), cells: cells}
}
