// Command image builds the container image of a release without an engine, for every architecture. It contains only the
// program and the public TLS authorities.
//
//	image build -version 0.1.0 -date 2026-11-26T00:00:00Z -out DIR linux/amd64=PROGRAM linux/arm64=PROGRAM
//	image push DIR REFERENCE...
//
// DIR has the OCI image layout. The same input produces the same bytes. push writes the digest to standard output, and
// uses the credentials of docker login.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && args[0] == "build":
		return build(args[1:])
	case len(args) > 2 && args[0] == "push":
		return push(ctx, args[1], args[2:])
	default:
		return errors.New("usage: image build -version V -date D -out DIR OS/ARCH=PROGRAM, or image push DIR REFERENCE")
	}
}

func build(args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	version := flags.String("version", "", "version of the release")
	date := flags.String("date", "", "when it was made, in RFC 3339: the commit's time")
	out := flags.String("out", "", "directory to write the layout to; it must not exist")
	if err := flags.Parse(args); err != nil {
		return err
	}
	made, err := time.Parse(time.RFC3339, *date)
	if err != nil {
		return fmt.Errorf("-date: %w", err)
	}
	if *version == "" || *out == "" || flags.NArg() == 0 {
		return errors.New("build needs -version, -out and at least one OS/ARCH=PROGRAM")
	}
	var programs []program
	for _, arg := range flags.Args() {
		platform, path, ok := strings.Cut(arg, "=")
		system, arch, both := strings.Cut(platform, "/")
		if !ok || !both {
			return fmt.Errorf("%q is not OS/ARCH=PROGRAM", arg)
		}
		programs = append(programs, program{system: system, arch: arch, path: path})
	}
	index, err := assemble(programs, *version, made.UTC())
	if err != nil {
		return err
	}
	if err := os.Mkdir(*out, 0o750); err != nil { // an older layout would leave its blobs in it
		return err
	}
	if _, err := layout.Write(*out, index); err != nil {
		return fmt.Errorf("write the image to %s: %w", *out, err)
	}
	return nil
}

// push writes the image to registries, and its digest to standard output.
func push(ctx context.Context, dir string, references []string) error {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("read the image in %s: %w", dir, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	for _, reference := range references {
		ref, err := name.ParseReference(reference)
		if err != nil {
			return err
		}
		if err := remote.WriteIndex(ref, index, remote.WithContext(ctx),
			remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("push %s: %w", reference, err)
		}
	}
	fmt.Println(digest)
	return nil
}
