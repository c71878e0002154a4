// Package table prints columns of text that fit a terminal.
package table

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
)

// minCell is the minimum width of a cut cell, in columns.
const minCell = 8

// Gap separates the columns of a table.
const Gap = "  "

// Column is a column of a table.
type Column struct {
	title string
	wide  bool // only with -o wide
	flex  bool // may be cut to fit the terminal
	lease bool // holds lease ids, which may be printed in their short form
	right bool // right-aligned
}

// Col returns a column that is cut only if cutting the Flex columns does not suffice.
func Col(title string) Column { return Column{title: title} }

// Wide returns a column that only a wide table has.
func Wide(title string) Column { return Column{title: title, wide: true} }

// Flex returns a column that may be cut to fit the terminal.
func Flex(title string) Column { return Column{title: title, flex: true} }

// Lease returns the column of lease ids, which may be printed in their short form.
func Lease() Column { return Col("LEASE").OfLeases() }

// Num returns a column of figures, aligned to the right.
func Num(title string) Column { return Column{title: title, right: true} }

// WideNum returns a column of figures that only a wide table has.
func WideNum(title string) Column { return Column{title: title, right: true, wide: true} }

// OfLeases returns the column for lease ids, which may be printed in their short form.
func (c Column) OfLeases() Column {
	c.lease = true
	return c
}

// Table collects rows of text, and prints them when all are known. The first column has the id of each row.
type Table struct {
	// Now is the reference time of ages.
	Now time.Time
	// Wide shows the wide columns and exact times.
	Wide bool
	// Width is the number of columns of the terminal, 0 for no limit.
	Width int
	// Paint colours titles and statuses with escape sequences.
	Paint bool

	// Exact shows all times exactly, so that a table changes only if its objects change.
	Exact bool

	columns []Column
	rows    [][]string
	notes   []string
	none    string
}

// Head sets the columns.
func (t *Table) Head(columns ...Column) { t.columns = columns }

// Row adds a row with a cell for each column.
func (t *Table) Row(cells ...string) {
	safe := make([]string, len(cells))
	for i, cell := range cells {
		if safe[i] = printable.Text(cell); safe[i] == "" {
			safe[i] = "-"
		}
	}
	t.rows = append(t.rows, safe)
}

// Note adds a line below the columns.
func (t *Table) Note(text string) { t.notes = append(t.notes, printable.Text(text)) }

// None sets the text for a table without rows.
func (t *Table) None(text string) { t.none = text }

// Remark returns the text for a table without rows, "" for other tables.
func (t *Table) Remark() string {
	if len(t.rows) > 0 {
		return ""
	}
	return t.none
}

// When formats a time as its distance from now, such as "5m0s ago" or "in 23h0m", and exactly in a wide table.
func (t *Table) When(at time.Time) string {
	switch d := t.Now.Sub(at); {
	case at.IsZero():
		return ""
	case t.Wide || t.Exact:
		return format.Moment(at)
	case d >= 0:
		return format.Length(d.Truncate(time.Second).Seconds()) + " ago"
	default:
		return "in " + format.Length((-d).Truncate(time.Second).Seconds())
	}
}

// Names prints the first cell of each row.
func (t *Table) Names(w io.Writer) error {
	for _, cells := range t.rows {
		if cells[0] == "-" { // no id
			continue
		}
		if _, err := fmt.Fprintln(w, cells[0]); err != nil {
			return err
		}
	}
	return nil
}

// Print prints the visible columns, and the notes.
func (t *Table) Print(w io.Writer) error {
	columns, rows := t.shown()
	fit(columns, rows, t.Width)
	widths := widthsOf(columns, rows)
	for n, cells := range rows {
		line := ""
		for i, cell := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.Paint {
				cell = paint(cell, n == 0)
			}
			switch {
			case columns[i].right:
				line += pad + cell + Gap
			default:
				line += cell + pad + Gap
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	for _, note := range t.notes {
		if _, err := fmt.Fprintln(w, printable.Wrap(note, t.Width)); err != nil {
			return err
		}
	}
	return nil
}

// shown returns the visible columns and their cells; the first row holds the titles.
func (t *Table) shown() (columns []Column, rows [][]string) {
	rows = make([][]string, 1+len(t.rows))
	for i, c := range t.columns {
		if c.wide && !t.Wide {
			continue
		}
		columns = append(columns, c)
		rows[0] = append(rows[0], c.title)
		for n, cells := range t.rows {
			rows[n+1] = append(rows[n+1], cells[i])
		}
	}
	return columns, rows
}

func widthsOf(columns []Column, rows [][]string) []int {
	widths := make([]int, len(columns))
	for _, cells := range rows {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// fit makes rows at most limit columns wide. It shortens lease ids, and then cuts columns. 0 means no limit.
func fit(columns []Column, rows [][]string, limit int) {
	excess := func() int {
		total := -len(Gap)
		for _, width := range widthsOf(columns, rows) {
			total += width + len(Gap)
		}
		return total - limit
	}
	if limit == 0 {
		return
	}
	for i, c := range columns {
		if c.lease && excess() > 0 {
			shorten(rows, i)
		}
	}
	for _, flexible := range []bool{true, false} { // the other columns only if cutting these is not enough
		for over := excess(); over > 0; over = excess() {
			widest, width := -1, minCell
			for i, w := range widthsOf(columns, rows) {
				if w > width && (columns[i].flex || !flexible) {
					widest, width = i, w
				}
			}
			if widest < 0 {
				break
			}
			cutColumn(rows, widest, max(minCell, width-max(1, over/2)))
		}
	}
}

// shorten replaces lease ids by their short forms, except ids that share a short form.
func shorten(rows [][]string, column int) {
	ids := map[string]map[string]bool{} // by short form
	for _, cells := range rows {
		short := format.ShortLease(cells[column])
		if ids[short] == nil {
			ids[short] = map[string]bool{}
		}
		ids[short][cells[column]] = true
	}
	for _, cells := range rows {
		if short := format.ShortLease(cells[column]); len(ids[short]) == 1 {
			cells[column] = short
		}
	}
}

func cutColumn(rows [][]string, column, width int) {
	for _, cells := range rows {
		cells[column] = format.Cut(cells[column], width)
	}
}
