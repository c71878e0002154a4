//go:build linux

package main

import (
	"encoding/json"
	"io"
	"os"
	"path"
	"syscall"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// diskUsage counts what lies below a directory, up to a number of files.
func diskUsage(root *os.Root, rel string, limit int, out io.Writer) error {
	c := counter{root: root, left: limit}
	if err := c.count(rel); err != nil {
		return err
	}
	c.usage.Complete = c.left >= 0
	return json.NewEncoder(out).Encode(c.usage)
}

type counter struct {
	root  *os.Root
	left  int
	usage wire.DiskUsage
}

// blockSize is the unit of stat(2)'s blocks, whatever the file system has.
const blockSize = 512

// count adds a file, or a directory and all below it. What this user may not read is not counted.
func (c *counter) count(name string) error {
	if c.left < 0 {
		return nil
	}
	info, err := c.root.Lstat(name)
	if err != nil {
		return forgive(name, err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		c.usage.Bytes += stat.Blocks * blockSize
	}
	if name != "." {
		c.left--
		c.usage.Files++
	}
	if !info.IsDir() {
		return nil
	}
	names, err := packer{root: c.root}.names(name)
	if err != nil {
		return forgive(name, err)
	}
	for _, child := range names {
		if err := c.count(path.Join(name, child)); err != nil {
			return err
		}
	}
	return nil
}

// forgive leaves out what has gone meanwhile, or cannot be read.
func forgive(name string, err error) error {
	if os.IsPermission(err) {
		return nil
	}
	return ignoreGone(name, err)
}
