package backup_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/backup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/backupfile"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sealedsecrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestMain gives every test credentials for an S3 service that accepts any, and hides the machine's.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(postgrestest.M(m).Run())
}

const (
	purpose  = "a purpose"
	snapshot = "1/2/3.tar.zst"
	// output is part of a command's output, which is larger than the ledger keeps.
	output = "a line that a command wrote\n"
)

func sqliteURL(t *testing.T) string {
	return "sqlite://" + filepath.Join(t.TempDir(), "state", "ledger.db")
}
func newPostgres(t *testing.T) string { return postgrestest.New(t) }

func directory(t *testing.T) string { return "file://" + filepath.Join(t.TempDir(), "bucket") }

// s3 returns a bucket of an S3 server of this process.
func s3(t *testing.T) string {
	t.Helper()
	backend := s3mem.New()
	must(t, backend.CreateBucket("kept"))
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithAutoBucket(false)).Server())
	t.Cleanup(server.Close)
	return "s3://kept?region=auto&use_path_style=true&endpoint=" + url.QueryEscape(server.URL)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place returns where an empty reconciler would keep its data.
func place(t *testing.T, ledgerURL, bucket string) backup.Config {
	t.Helper()
	return backup.Config{
		LedgerURL:     ledgerURL,
		SecretKeyFile: filepath.Join(t.TempDir(), "keys", "secret-keys"),
		SnapshotURL:   bucket,
		Version:       "test",
	}
}

// furnish fills a place with an environment, its secret, a snapshot, and a command with large output.
func furnish(t *testing.T, c backup.Config) {
	t.Helper()
	bucket, err := snapshotstore.Open(t.Context(), c.SnapshotURL)
	must(t, err)
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "memory", Mode: 0o644, Size: int64(len(output))}))
	_, err = io.WriteString(w, output)
	must(t, errors.Join(err, w.Close()))
	saved, err := bucket.Save(t.Context(), snapshot, &data, 1<<20)
	must(t, err)
	sealed, err := seal.InFile(c.SecretKeyFile, true).Seal([]byte("secret"), purpose)
	must(t, err)

	store, err := ledger.Open(t.Context(), c.LedgerURL, ledger.Options{})
	must(t, err)
	exec := execs.Exec{
		ID:       "command",
		LeaseID:  "did:plc:ann::e",
		Command:  []string{"true"},
		EnvNames: []string{},
		State:    sandbox.ExecFinished,
		Holder:   "holder",
		Stdout:   execs.Output{Bytes: int64(len(output)), Kept: int64(len(output))},
		Stderr:   execs.Output{Bytes: 4, Kept: 4, Inline: []byte("none")},
	}
	must(t, store.Write(t.Context(), func(tx *ledger.Tx) error {
		row := ledgertest.Sandbox(tx, "e", 1)
		exec.SandboxID = row.ID
		return errors.Join(
			ledgertest.Environment(tx, "e"),
			tx.CreateSandbox(row),
			execs.In(tx).CreateExec(&exec),
			sealedsecrets.In(tx).Save(&sealedsecrets.Secret{EnvironmentID: "e", Name: "s", Sealed: sealed, UpdatedAt: tx.Now}),
			bucketobjects.In(tx).MarkForDeletion(snapshot, micro.Never),
			bucketobjects.In(tx).Publish(&bucketobjects.Snapshot{Key: "did:plc:ann@e", Object: snapshot, SHA256: saved.SHA256,
				Bytes: saved.Bytes, UnpackedBytes: saved.Size, Files: saved.Files}, tx.Now),
		)
	}))
	must(t, bucket.Put(t.Context(), exec.OutputObject(sandbox.Stdout), strings.NewReader(output)))
	must(t, errors.Join(store.Close(), bucket.Close()))
}

// wantFurnished checks that a place has what furnish puts there.
func wantFurnished(t *testing.T, c backup.Config) {
	t.Helper()
	x, err := storage.Examine(t.Context(), c.LedgerURL)
	must(t, err)
	again := filepath.Join(t.TempDir(), "again")
	info, err := backupfile.Take(t.Context(), c.LedgerURL, again, ledger.Options{})
	must(t, err)
	if info.Environments != 1 || info.LedgerID != x.ID || len(info.Objects) != 2 || len(info.Sealed) != 1 {
		t.Fatalf("the ledger holds %+v", info)
	}
	text, err := seal.InFile(c.SecretKeyFile, false).Open(info.Sealed[0], purpose)
	if err != nil || string(text) != "secret" {
		t.Errorf("the secret is %q, %v", text, err)
	}
	bucket, err := snapshotstore.Open(t.Context(), c.SnapshotURL)
	must(t, err)
	saved, large := info.Objects[0], info.Objects[1]
	spool, err := bucket.Fetch(t.Context(), snapshotstore.Archive{
		Object: saved.Object,
		SHA256: saved.SHA256,
		Bytes:  saved.Bytes,
	})
	must(t, err)
	spool.Discard()
	r, err := bucket.Open(t.Context(), large.Object, 0)
	must(t, err)
	written, err := io.ReadAll(r)
	if must(t, errors.Join(err, r.Close(), bucket.Close())); string(written) != output {
		t.Errorf("the command wrote %q", written)
	}
}

func wantCode(t *testing.T, what string, err error, code sandbox.Code, text string) {
	t.Helper()
	if err == nil || sandbox.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v (%s), want %s: %s", what, err, sandbox.CodeOf(err), code, text)
	}
}

// archived furnishes a place and returns it with an archive of it.
func archived(t *testing.T, change ...func(*backup.Config)) (c backup.Config, file string) {
	t.Helper()
	c, file = place(t, sqliteURL(t), directory(t)), filepath.Join(t.TempDir(), "backup.tar")
	furnish(t, c)
	for _, do := range change {
		do(&c)
	}
	r, err := backup.Create(t.Context(), file, c)
	must(t, err)
	if len(r.Missing) > 0 || r.MissingOutputs > 0 {
		t.Fatalf("the backup lacks %v and %d outputs", r.Missing, r.MissingOutputs)
	}
	return c, file
}

func TestOneFileBringsEverythingBack(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]struct{ from, to, bucketFrom, bucketTo func(*testing.T) string }{
		"SQLite and a directory":               {sqliteURL, sqliteURL, directory, directory},
		"SQLite and S3 to PostgreSQL":          {sqliteURL, newPostgres, s3, s3},
		"PostgreSQL and S3 to SQLite":          {newPostgres, sqliteURL, s3, directory},
		"PostgreSQL and a directory to itself": {newPostgres, newPostgres, directory, s3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := place(t, p.from(t), p.bucketFrom(t)), place(t, p.to(t), p.bucketTo(t))
			file := filepath.Join(t.TempDir(), "backup.tar")
			furnish(t, from)
			_, err := backup.Create(t.Context(), file, from)
			must(t, err)
			info, err := os.Stat(file)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the archive has mode %v, %v", info.Mode(), err)
			}
			if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
				t.Errorf("beside the archive there is %v, %v", entries, err)
			}
			_, err = backup.Create(t.Context(), file, from)
			wantCode(t, "another one to the same file", err, sandbox.Conflict, "is not overwritten")

			r, isRestored, err := backup.Restore(t.Context(), file, to, false)
			if err != nil || !isRestored || !r.Keys || r.Snapshots != 1 || r.Outputs != 1 || len(r.Missing) > 0 {
				t.Fatalf("restored: %v, %+v, %v", isRestored, r, err)
			}
			wantFurnished(t, to)
			_, _, err = backup.Restore(t.Context(), file, to, false)
			wantCode(t, "restoring twice", err, sandbox.Conflict, "is not overwritten")
		})
	}
}

func TestAManifestSaysWhatAnArchiveHolds(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		change  func(*backup.Config)
		members []string
	}{
		"everything":   {func(*backup.Config) {}, []string{"ledger.db", "secret-keys", "data/" + snapshot, "data/execs/"}},
		"without keys": {func(c *backup.Config) { c.WithoutKeys = true }, []string{"ledger.db", "data/" + snapshot, "data/execs/"}},
		"without data": {func(c *backup.Config) { c.WithoutSavedData = true }, []string{"ledger.db", "secret-keys"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, file := archived(t, want.change)
			members := readMembers(t, file)
			last := members[len(members)-1]
			var m backup.Manifest
			if err := json.Unmarshal(last.content, &m); err != nil || last.name != "manifest.json" {
				t.Fatalf("the last member is %s: %v", last.name, err)
			}
			if m.Format != 1 || m.Version != "test" || m.LedgerID == "" || m.Schema == 0 || m.TakenAt.IsZero() ||
				m.WithoutKeys != c.WithoutKeys || m.WithoutSavedData != c.WithoutSavedData {
				t.Errorf("the manifest is %s", last.content)
			}
			var names []string
			for i, member := range m.Members {
				if member.Name != members[i].name || member.Bytes != int64(len(members[i].content)) || len(member.SHA256) != 64 {
					t.Errorf("member %d is %+v in the manifest and %s in the archive", i, member, members[i].name)
				}
				if i < len(want.members) && strings.HasPrefix(member.Name, want.members[i]) {
					names = append(names, want.members[i])
				} else {
					names = append(names, member.Name)
				}
			}
			if d := cmp.Diff(want.members, names); d != "" {
				t.Errorf("members (-want +got):\n%s", d)
			}
		})
	}
}

type member struct {
	name    string
	content []byte
}

func readMembers(t *testing.T, file string) (all []member) {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		content, err := io.ReadAll(r)
		must(t, err)
		all = append(all, member{h.Name, content})
	}
}

func writeMembers(t *testing.T, members []member) (file string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: 0o600, Size: int64(len(m.content))}))
		_, err := w.Write(m.content)
		must(t, err)
	}
	must(t, w.Close())
	file = filepath.Join(t.TempDir(), "changed.tar")
	must(t, os.WriteFile(file, b.Bytes(), 0o600))
	return file
}

func TestAChangedArchiveIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	_, file := archived(t)
	members := readMembers(t, file)
	manifest := len(members) - 1
	changes := map[string]func(m []member) []member{
		"without its manifest":  func(m []member) []member { return m[:manifest] },
		"with something behind": func(m []member) []member { return append(m, member{"more", nil}) },
		"with a member twice":   func(m []member) []member { return slices.Insert(m, 1, m[0]) },
		"with another member":   func(m []member) []member { return slices.Insert(m, 1, member{"data/other", nil}) },
		"of a newer program": func(m []member) []member {
			m[manifest].content = bytes.Replace(m[manifest].content, []byte(`"format": 1`), []byte(`"format": 2`), 1)
			return m
		},
	}
	for i, m := range members[:manifest] {
		changes["without "+m.name] = func(m []member) []member { return slices.Delete(m, i, i+1) }
		changes["with a bit of "+m.name+" changed"] = func(m []member) []member {
			m[i].content[len(m[i].content)/2] ^= 1
			return m
		}
	}
	files := map[string]string{}
	for what, change := range changes {
		copied := make([]member, len(members))
		for i, m := range members {
			copied[i] = member{m.name, bytes.Clone(m.content)}
		}
		files[what] = writeMembers(t, change(copied))
	}
	whole, err := os.ReadFile(file)
	must(t, err)
	for what, content := range map[string][]byte{
		"empty": {}, "text": []byte(strings.Repeat("no backup ", 100)), "cut": whole[:len(whole)/2],
		"cut in its manifest": whole[:len(whole)-2048],
	} {
		files[what] = filepath.Join(t.TempDir(), "broken.tar")
		must(t, os.WriteFile(files[what], content, 0o600))
	}
	for what, file := range files {
		to := place(t, sqliteURL(t), directory(t))
		code, text := sandbox.Invalid, file
		if what == "of a newer program" {
			code, text = sandbox.Conflict, "use the program that wrote it, version test"
		}
		_, isRestored, err := backup.Restore(t.Context(), file, to, true)
		wantCode(t, what, err, code, text)
		if isRestored {
			t.Errorf("%s: restored", what)
		}
		for _, path := range []string{to.LedgerURL, to.SnapshotURL, to.SecretKeyFile} {
			if path = strings.TrimPrefix(strings.TrimPrefix(path, "sqlite://"), "file://"); exists(path) {
				t.Errorf("%s: it has written %s", what, path)
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestWhatIsMissingIsReportedAndNotRestored(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "backup.tar")
	from, to := place(t, sqliteURL(t), directory(t)), place(t, sqliteURL(t), directory(t))
	furnish(t, from)
	dir := strings.TrimPrefix(from.SnapshotURL, "file://")
	must(t, os.Truncate(filepath.Join(dir, filepath.FromSlash(snapshot)), 10))
	must(t, errors.Join(os.RemoveAll(filepath.Join(dir, "execs")), os.Remove(from.SecretKeyFile)))
	r, err := backup.Create(t.Context(), file, from)
	if err != nil || r.Keys || r.Snapshots != 0 || r.MissingOutputs != 1 || len(r.Missing) != 2 ||
		!strings.HasPrefix(r.Missing[0], "a key: ") ||
		r.Missing[1] != "snapshot of did:plc:ann@e: "+snapshot+" in "+from.SnapshotURL+" is damaged" {
		t.Errorf("the backup reports %+v, %v", r, err)
	}
	r, isRestored, err := backup.Restore(t.Context(), file, to, false)
	if err != nil || isRestored || len(r.Missing) != 2 || r.MissingOutputs != 1 || exists(to.SecretKeyFile) ||
		exists(strings.TrimPrefix(to.LedgerURL, "sqlite://")) {
		t.Errorf("restored: %v, %+v, %v", isRestored, r, err)
	}
	if _, isRestored, err = backup.Restore(t.Context(), file, to, true); err != nil || !isRestored {
		t.Errorf("incomplete: restored: %v, %v", isRestored, err)
	}
}

func TestWhatWasLeftOutIsTakenFromItsPlace(t *testing.T) {
	t.Parallel()
	from, file := archived(t, func(c *backup.Config) { c.WithoutKeys, c.WithoutSavedData = true, true })
	to := place(t, sqliteURL(t), directory(t))
	r, err := backup.Check(t.Context(), file, to)
	if err != nil || len(r.Missing) != 2 || r.Keys || r.MissingOutputs != 0 {
		t.Errorf("elsewhere it reports %+v, %v", r, err)
	}
	from.LedgerURL = to.LedgerURL
	if _, isRestored, err := backup.Restore(t.Context(), file, from, false); err != nil || !isRestored {
		t.Fatalf("restored: %v, %v", isRestored, err)
	}
	wantFurnished(t, from)
}

func TestAKeyFileIsKept(t *testing.T) {
	t.Parallel()
	from, file := archived(t)
	to := place(t, sqliteURL(t), directory(t))
	must(t, seal.Generate(to.SecretKeyFile))
	other, err := os.ReadFile(to.SecretKeyFile)
	must(t, err)
	_, _, err = backup.Restore(t.Context(), file, to, true)
	wantCode(t, "another key", err, sandbox.Conflict, "move it away")

	key, err := os.ReadFile(from.SecretKeyFile)
	must(t, err)
	both := slices.Concat(other, key)
	must(t, os.WriteFile(to.SecretKeyFile, both, 0o600))
	_, _, err = backup.Restore(t.Context(), file, to, false)
	must(t, err)
	if now, err := os.ReadFile(to.SecretKeyFile); err != nil || !bytes.Equal(now, both) {
		t.Errorf("the key file has become %q, %v", now, err)
	}
	wantFurnished(t, to)
}

// TestALedgerAloneIsABackup restores a file of an earlier program.
func TestALedgerAloneIsABackup(t *testing.T) {
	t.Parallel()
	from, file := place(t, sqliteURL(t), directory(t)), filepath.Join(t.TempDir(), "backup")
	furnish(t, from)
	_, err := backupfile.Take(t.Context(), from.LedgerURL, file, ledger.Options{})
	must(t, err)
	from.LedgerURL = sqliteURL(t)
	r, isRestored, err := backup.Restore(t.Context(), file, from, false)
	if err != nil || !isRestored || r.Keys || r.Snapshots != 0 || r.MissingOutputs != 0 {
		t.Fatalf("restored: %v, %+v, %v", isRestored, r, err)
	}
	wantFurnished(t, from)
}
