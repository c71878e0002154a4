package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
)

// minCell is the width that a cell is cut to at most, in columns.
const minCell = 8

// gap separates the columns of a table.
const gap = "  "

// column is a column of a table.
type column struct {
	title string
	wide  bool // only with -o wide
	flex  bool // may be cut to fit the terminal
	lease bool // holds lease ids, which may be printed in their short form
	right bool // right-aligned
}

func col(title string) column     { return column{title: title} }
func wide(title string) column    { return column{title: title, wide: true} }
func flex(title string) column    { return column{title: title, flex: true} }
func leaseCol() column            { return column{title: "LEASE", lease: true} }
func num(title string) column     { return column{title: title, right: true} }
func wideNum(title string) column { return column{title: title, right: true, wide: true} }

// table collects columns of text, and prints them once they are all there. The first column has the id of each row.
type table struct {
	now   time.Time
	wide  bool
	width int // columns of the terminal, 0 for no limit
	paint bool

	columns []column
	rows    [][]string
	notes   []string
}

// head sets the columns.
func (t *table) head(columns ...column) { t.columns = columns }

// row adds a row with a cell for each column.
func (t *table) row(cells ...string) {
	safe := make([]string, len(cells))
	for i, cell := range cells {
		if safe[i] = printable.Text(cell); safe[i] == "" {
			safe[i] = "-"
		}
	}
	t.rows = append(t.rows, safe)
}

// note adds a line below the columns.
func (t *table) note(text string) { t.notes = append(t.notes, printable.Text(text)) }

// when formats a time as its distance from now, such as "5m0s ago" or "in 23h0m", and exactly in a wide table.
func (t *table) when(at time.Time) string {
	switch d := t.now.Sub(at); {
	case at.IsZero():
		return ""
	case t.wide:
		return moment(at)
	case d >= 0:
		return length(d.Truncate(time.Second).Seconds()) + " ago"
	default:
		return "in " + length((-d).Truncate(time.Second).Seconds())
	}
}

// names prints the first cell of each row.
func (t *table) names(w io.Writer) error {
	for _, cells := range t.rows {
		if cells[0] == "-" { // it has none
			continue
		}
		if _, err := fmt.Fprintln(w, cells[0]); err != nil {
			return err
		}
	}
	return nil
}

// print prints the columns that are shown, and the notes.
func (t *table) print(w io.Writer) error {
	columns, rows := t.shown()
	fit(columns, rows, t.width)
	widths := widthsOf(columns, rows)
	for n, cells := range rows {
		line := ""
		for i, cell := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.paint {
				cell = paint(cell, n == 0)
			}
			switch {
			case columns[i].right:
				line += pad + cell + gap
			default:
				line += cell + pad + gap
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	for _, note := range t.notes {
		if _, err := fmt.Fprintln(w, printable.Wrap(note, t.width)); err != nil {
			return err
		}
	}
	return nil
}

// shown returns the columns that are shown and their cells; the first row holds the titles.
func (t *table) shown() (columns []column, rows [][]string) {
	rows = make([][]string, 1+len(t.rows))
	for i, c := range t.columns {
		if c.wide && !t.wide {
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

func widthsOf(columns []column, rows [][]string) []int {
	widths := make([]int, len(columns))
	for _, cells := range rows {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// fit makes rows at most limit columns wide: lease ids take their short form, then columns are cut. 0 is no limit.
func fit(columns []column, rows [][]string, limit int) {
	excess := func() int {
		total := -len(gap)
		for _, width := range widthsOf(columns, rows) {
			total += width + len(gap)
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
	for _, flexible := range []bool{true, false} { // the others only if that does not suffice
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

// shorten replaces lease ids by their short forms, except those that have the same.
func shorten(rows [][]string, column int) {
	ids := map[string]map[string]bool{} // by short form
	for _, cells := range rows {
		short := shortLease(cells[column])
		if ids[short] == nil {
			ids[short] = map[string]bool{}
		}
		ids[short][cells[column]] = true
	}
	for _, cells := range rows {
		if short := shortLease(cells[column]); len(ids[short]) == 1 {
			cells[column] = short
		}
	}
}

func cutColumn(rows [][]string, column, width int) {
	for _, cells := range rows {
		cells[column] = cut(cells[column], width)
	}
}

// cut shortens a text to a number of characters, the last of which is then "…".
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}
