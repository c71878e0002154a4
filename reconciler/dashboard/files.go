package dashboard

import (
	"bytes"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// filesPerPage is how many files of a directory a page lists.
	filesPerPage = 200
	// maxShownFile limits the file that a page shows, in bytes.
	maxShownFile = 256 << 10
)

// filesPage shows a directory or a file of a sandbox.
type filesPage struct {
	leaseHead
	Roots  []tab
	Crumbs []tab // from the root to the path
	Path   string
	// Asleep means that looking would wake the sandbox, so the page does not look.
	Asleep bool
	// Problem says why there is nothing to see.
	Problem string
	Files   []file
	Next    string // URL of the next files of the directory, "" for none
	// File is the file at the path, nil for a directory.
	File   *sandbox.FileInfo
	Text   string
	Binary bool
	Large  bool
}

// file is a file in a directory.
type file struct {
	sandbox.FileInfo
	Address string // "" for a file that cannot be opened
}

// showFiles shows /workspace and /data of a sandbox, and changes nothing. It does not wake a sandbox, and does not
// follow the lease, because each look is a use of the sandbox.
func showFiles(p *page) error {
	h, err := p.leaseHead("files")
	if err != nil {
		return err
	}
	v := filesPage{leaseHead: h}
	if v.Path, err = sandbox.CleanPath(p.orDefault("path", sandbox.Roots[0])); err != nil {
		return sandbox.InvalidFields("the page's URL", []sandbox.Field{{Name: "path", Problem: err.Error()}})
	}
	at := func(path string) string { return link.To(link.Lease(h.ID, "files"), "path", path) }
	for _, root := range sandbox.Roots {
		chosen := v.Path == root || strings.HasPrefix(v.Path, root+"/")
		v.Roots = append(v.Roots, tab{root, at(root), chosen})
	}
	for at, rest := "", strings.Split(v.Path[1:], "/"); len(rest) > 0; rest = rest[1:] {
		at += "/" + rest[0]
		v.Crumbs = append(v.Crumbs, tab{rest[0], link.To(link.Lease(h.ID, "files"), "path", at), len(rest) == 1})
	}
	switch {
	case !h.Live():
		v.Problem = "The lease has ended, and its files are gone."
	case h.Phase != sandbox.PhaseAwake:
		v.Asleep = true
	default:
		err = p.look(&v, at)
	}
	switch sandbox.CodeOf(err) {
	case "":
	case sandbox.NotFound, sandbox.Conflict, sandbox.LeaseEnded, sandbox.Unavailable, sandbox.Failed, sandbox.Invalid:
		v.Problem = err.Error()
	default:
		return err
	}
	return p.show("files", path.Base(v.Path), "leases", "", v)
}

// look reads the directory or the file at the path.
func (p *page) look(v *filesPage, at func(path string) string) error {
	ref := sandbox.LeaseRef{ID: v.ID, Generation: v.Generation}
	info, err := p.service.StatFile(p.ctx, ref, v.Path)
	if err != nil {
		return err
	}
	if info.Type == sandbox.FileDirectory {
		return p.list(v, ref, at)
	}
	v.File = &info
	if info.Type != sandbox.FileRegular || !p.may("read-files") {
		return nil
	}
	if v.Large = info.Size > maxShownFile; v.Large {
		return nil
	}
	content, err := p.service.ReadFile(p.ctx, ref, sandbox.FileRead{Path: v.Path, MaxBytes: maxShownFile})
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(content, maxShownFile))
	if closeErr := content.Close(); err == nil {
		err = closeErr
	}
	if v.Binary = bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b); !v.Binary {
		v.Text = string(b)
	}
	return err
}

// list lists a directory: by name, directories first.
func (p *page) list(v *filesPage, ref sandbox.LeaseRef, at func(path string) string) error {
	list, err := p.service.ListFiles(p.ctx, ref,
		sandbox.FileQuery{Path: v.Path, After: p.query("after"), Limit: filesPerPage + 1})
	if err != nil {
		return err
	}
	if len(list) > filesPerPage {
		list = list[:filesPerPage]
		v.Next = link.To(link.Lease(v.ID, "files"), "path", v.Path, "after", list[filesPerPage-1].Name)
	}
	for _, f := range list {
		one := file{FileInfo: f}
		if f.Type == sandbox.FileDirectory || f.Type == sandbox.FileRegular {
			one.Address = at(v.Path + "/" + f.Name)
		}
		v.Files = append(v.Files, one)
	}
	slices.SortStableFunc(v.Files, func(a, b file) int { return directoryFirst(a) - directoryFirst(b) })
	return nil
}

func directoryFirst(f file) int {
	if f.Type == sandbox.FileDirectory {
		return 0
	}
	return 1
}
