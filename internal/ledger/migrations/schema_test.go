package migrations_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
)

// TestBothDatabasesHaveOneSchema compares the schemas that the migrations of each database create: columns with their
// types, nullability, defaults and expressions; checks; keys, references and indexes.
func TestBothDatabasesHaveOneSchema(t *testing.T) {
	t.Parallel()
	onSQLite, onPostgres := ledgertest.SQLiteURL(t), postgrestest.New(t)
	ledgertest.Open(t, onSQLite, ledger.Options{})
	ledgertest.Open(t, onPostgres, ledger.Options{})
	u, err := url.Parse(onSQLite)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sqliteSchema(t, query(t, "sqlite", u.Path)),
		postgresSchema(t, query(t, "pgx", onPostgres))); d != "" {
		t.Errorf("what SQLite has (-) and PostgreSQL (+):\n%s", d)
	}
}

// asker returns the rows of a query, each a list of texts; NULL is "".
type asker func(query string, args ...any) [][]string

func query(t *testing.T, driver, dsn string) asker {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(q string, args ...any) (all [][]string) {
		t.Helper()
		rows, err := db.QueryContext(t.Context(), q, args...)
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		defer func() { _ = rows.Close() }()
		names, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			cells, into := make([]sql.NullString, len(names)), make([]any, len(names))
			for i := range cells {
				into[i] = &cells[i]
			}
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			row := make([]string, len(names))
			for i, c := range cells {
				row[i] = c.String
			}
			all = append(all, row)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return all
	}
}

// sqliteSchema lists a schema, one line for each part.
func sqliteSchema(t *testing.T, ask asker) string {
	t.Helper()
	var lines []string
	for _, table := range ask("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' " +
		"AND name NOT LIKE 'goose_%'") {
		name, text := table[0], withoutComments(table[1])
		lines = append(lines, sqliteColumns(ask, name, text)...)
		for _, check := range bracketed(text, "CHECK") {
			lines = append(lines, fmt.Sprintf("%s check %s", name, plain(check)))
		}
		for _, r := range ask("SELECT \"from\", \"table\", \"to\" FROM pragma_foreign_key_list(?)", name) {
			lines = append(lines, fmt.Sprintf("%s.%s references %s.%s", name, r[0], r[1], r[2]))
		}
		for _, i := range ask(`SELECT l.name, l.origin, l."unique", (SELECT group_concat(name, ', ') FROM (SELECT name FROM pragma_index_info(l.name) ORDER BY seqno)), m.sql
			FROM pragma_index_list(?) l LEFT JOIN sqlite_master m ON m.name = l.name WHERE l.origin <> 'pk'`, name) {
			lines = append(lines, index(name, i[0], i[1] == "u", i[2] == "1", i[3], after(i[4], " WHERE ")))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func sqliteColumns(ask asker, table, text string) (lines []string) {
	types := map[string]string{"INTEGER": "integer", "TEXT": "text", "BLOB": "bytes"}
	expressions := make(map[string]string)
	for _, m := range regexp.MustCompile(`(\w+)\s+\w+\s+GENERATED`).FindAllStringSubmatchIndex(text, -1) {
		expressions[text[m[2]:m[3]]] = bracketed(text[m[0]:], "AS")[0]
	}
	var key []string
	for _, c := range ask(`SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?) ORDER BY pk`, table) {
		isKey := c[4] != "0"
		if isKey {
			key = append(key, c[0])
		}
		kind := types[strings.TrimSuffix(c[1], " GENERATED ALWAYS")]
		lines = append(lines, column(table, c[0], kind, c[2] == "1" || isKey, c[3], expressions[c[0]]))
	}
	return append(lines, fmt.Sprintf("%s key %s", table, strings.Join(key, ", ")))
}

func postgresSchema(t *testing.T, ask asker) string {
	t.Helper()
	var lines []string
	types := map[string]string{"bigint": "integer", "text": "text", "bytea": "bytes"}
	for _, c := range ask(`SELECT table_name, column_name, data_type, is_nullable, column_default, generation_expression
		FROM information_schema.columns WHERE table_schema = current_schema() AND table_name NOT LIKE 'goose_%'`) {
		lines = append(lines, column(c[0], c[1], types[c[2]], c[3] == "NO", c[4], c[5]))
	}
	const columns = `(SELECT string_agg(a.attname, ', ' ORDER BY k.n) FROM unnest(%s) WITH ORDINALITY k (id, n) JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = k.id)`
	for _, c := range ask(`SELECT r.relname, c.contype, ` + fmt.Sprintf(columns, "c.conkey") +
		`, pg_get_expr(c.conbin, r.oid), o.relname,
			(SELECT string_agg(a.attname, ', ') FROM pg_attribute a WHERE a.attrelid = o.oid AND a.attnum = ANY (c.confkey))
		FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid LEFT JOIN pg_class o ON o.oid = c.confrelid
		WHERE c.connamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND r.relname NOT LIKE 'goose_%' AND c.contype IN ('p', 'f', 'c')`) {
		switch c[1] {
		case "p":
			lines = append(lines, fmt.Sprintf("%s key %s", c[0], c[2]))
		case "f":
			lines = append(lines, fmt.Sprintf("%s.%s references %s.%s", c[0], c[2], c[4], c[5]))
		case "c":
			lines = append(lines, fmt.Sprintf("%s check %s", c[0], plain(c[3])))
		}
	}
	for _, i := range ask(`SELECT r.relname, n.relname, c.oid, i.indisunique::int, ` + fmt.Sprintf(columns, "i.indkey") +
		`, pg_get_expr(i.indpred, r.oid)
		FROM pg_index i JOIN pg_class r ON r.oid = i.indrelid JOIN pg_class n ON n.oid = i.indexrelid LEFT JOIN pg_constraint c ON c.conindid = n.oid AND c.contype = 'u'
		WHERE r.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND r.relname NOT LIKE 'goose_%' AND NOT i.indisprimary`) {
		lines = append(lines, index(i[0], i[1], i[2] != "", i[3] == "1", i[4], i[5]))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func column(table, name, kind string, notNull bool, value, expression string) string {
	line := fmt.Sprintf("%s.%s %s", table, name, kind)
	if notNull {
		line += " not null"
	}
	if value != "" {
		line += " default " + plain(value)
	}
	if expression != "" {
		line += " as " + plain(expression)
	}
	return line
}

// index describes an index. The database names the indexes of UNIQUE constraints itself.
func index(table, name string, unnamed, unique bool, columns, where string) string {
	line := fmt.Sprintf("%s index %s", table, name)
	if unnamed {
		line = table + " index"
	}
	if unique {
		line += " unique"
	}
	line += " on " + columns
	if where != "" {
		line += " where " + plain(where)
	}
	return line
}

// plain writes an expression in a form that both dialects share. It drops parentheses, so it does not see differences
// in parentheses only.
func plain(expression string) string {
	for _, r := range []struct{ pattern, by string }{
		{`::[a-z]+(\[\])?`, ""},
		{`(?i)= ANY \(\(?ARRAY\[([^]]*)\]\)?\)`, "IN ($1)"},
		{`(?i)\bGREATEST\b`, "max"},
		{`(?i)\bLEAST\b`, "min"},
		{`[()]`, " "},
		{`\s+`, " "},
		{` ?(,|<>|>=|<=|=|<|>|\+|-) ?`, "$1"},
	} {
		expression = regexp.MustCompile(r.pattern).ReplaceAllString(expression, r.by)
	}
	return strings.TrimSpace(expression)
}

func withoutComments(text string) string {
	return regexp.MustCompile(`--[^\n]*`).ReplaceAllString(text, "")
}

func after(text, mark string) string {
	_, rest, _ := strings.Cut(withoutComments(text), mark)
	return rest
}

// bracketed returns the text in the parentheses after each occurrence of a word.
func bracketed(text, word string) (found []string) {
	for _, at := range regexp.MustCompile(`\b`+word+`\s*\(`).FindAllStringIndex(text, -1) {
		depth := 1
		for i := at[1]; i < len(text); i++ {
			switch text[i] {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth == 0 {
				found = append(found, text[at[1]:i])
				break
			}
		}
	}
	return found
}

// beforeLargeRows is the schema of the last program whose SQLite tables had outputs and messages in the tree of keys.
const beforeLargeRows = 12

// TestLargeRowsMoveOutOfTheTreeOfKeys opens a ledger of an older program. Its commands and messages must not change.
func TestLargeRowsMoveOutOfTheTreeOfKeys(t *testing.T) {
	t.Parallel()
	newest, old := filepath.Join(t.TempDir(), "ledger.db"), filepath.Join(t.TempDir(), "old.db")
	store := ledgertest.Open(t, "sqlite://"+newest, ledger.Options{})
	ledgertest.MakeEnvironment(t, store, "catan-7")
	leaseFor(t, store, "did:plc:abc")
	tables := []string{"execs", "deliveries"}
	for _, table := range tables {
		for row := range 3 {
			fillRow(t, newest, table, row)
		}
	}
	copyAsOf(t, newest, old, beforeLargeRows)
	columns := map[string]string{} // columns of the older program; later ones get their defaults
	for _, table := range tables {
		columns[table] = query(t, "sqlite", old)("SELECT group_concat(name, ', ') FROM pragma_table_info(?)", table)[0][0]
	}
	ledgertest.Open(t, "sqlite://"+old, ledger.Options{})
	was, is := query(t, "sqlite", newest), query(t, "sqlite", old)
	for _, table := range tables {
		rows := "SELECT " + columns[table] + " FROM " + table + " ORDER BY id"
		if d := cmp.Diff(was(rows), is(rows)); d != "" {
			t.Errorf("%s before (-) and after (+):\n%s", table, d)
		}
		if made := is("SELECT sql FROM sqlite_schema WHERE name = ?", table)[0][0]; strings.Contains(made, "WITHOUT ROWID") {
			t.Errorf("a search in %s reads whole rows:\n%s", table, made)
		}
	}
}

// fillRow adds a row with a different value in each column.
func fillRow(t *testing.T, path, table string, row int) {
	t.Helper()
	var names, values []string
	for i, column := range query(t, "sqlite", path)("SELECT name, type FROM pragma_table_info(?)", table) {
		name, kind := column[0], column[1]
		value := strconv.Itoa(100*row + i)
		switch {
		case name == "sandbox_id":
			value = "(SELECT id FROM sandboxes)"
		case name == "state":
			value = "'finished'"
		case name == "status":
			value = "'applied'"
		case kind != "INTEGER":
			value = "'" + name + strings.Repeat(value, 1000) + "'"
		}
		names, values = append(names, name), append(values, value)
	}
	query(t, "sqlite", path)(fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)",
		table, strings.Join(names, ", "), strings.Join(values, ", ")))
}

// TestABackupHasEveryTable keeps the list of copied tables complete.
func TestABackupHasEveryTable(t *testing.T) {
	t.Parallel()
	url := ledgertest.SQLiteURL(t)
	ledgertest.Open(t, url, ledger.Options{})
	var want []string
	for _, row := range query(t, "sqlite", strings.TrimPrefix(url, "sqlite://"))("SELECT name FROM sqlite_master " +
		"WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%' ORDER BY name") {
		want = append(want, row[0])
	}
	if d := cmp.Diff(want, slices.Sorted(slices.Values(migrations.Tables))); d != "" {
		t.Errorf("the schema has (-) and a backup copies (+):\n%s", d)
	}
}
