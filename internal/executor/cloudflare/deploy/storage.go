package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/cloudflare/cloudflare-go/v7/d1"
	"github.com/cloudflare/cloudflare-go/v7/r2"
	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
)

const (
	// objectsAtOnce is how many objects of a bucket are deleted at the same time.
	objectsAtOnce = 8
	// objectsPerPage is the largest page that R2 gives.
	objectsPerPage = 1000
)

// findDatabase returns the id of the database, "" if there is none.
func (d *Deployer) findDatabase(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p d1.DatabaseListParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	p.Name.Value, p.Name.Present = name, true // also finds others whose names contain it
	for pages := d.databases.ListAutoPaging(ctx, p); ; {
		if !pages.Next() {
			return "", d.fail(step{what: "look for D1 database " + name, needs: permD1}, pages.Err())
		}
		if found := pages.Current(); found.Name == name {
			return found.UUID, nil
		}
	}
}

func (d *Deployer) ensureDatabase(ctx context.Context, want cloudflare.Deployment, s *inventory) error {
	if s.database != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p d1.DatabaseNewParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	p.Name.Value, p.Name.Present = want.Name, true
	made, err := d.databases.New(ctx, p)
	if err != nil {
		return d.fail(step{what: "make D1 database " + want.Name, changes: true, needs: permD1}, err)
	}
	s.database = made.UUID
	return nil
}

func (d *Deployer) removeDatabase(ctx context.Context, s *inventory) error {
	if s.database == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p d1.DatabaseDeleteParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	_, err := d.databases.Delete(ctx, s.database, p)
	return d.fail(step{what: "delete D1 database " + s.name, changes: true, needs: permD1}, err)
}

func (d *Deployer) findBucket(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p r2.BucketGetParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	_, err := d.buckets.Get(ctx, name, p)
	if isAbsent(err) {
		return false, nil
	}
	return err == nil, d.fail(step{what: "look for R2 bucket " + name, needs: permR2}, err)
}

func (d *Deployer) ensureBucket(ctx context.Context, want cloudflare.Deployment, s *inventory) error {
	if s.bucket {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p r2.BucketNewParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	p.Name.Value, p.Name.Present = want.Name, true
	_, err := d.buckets.New(ctx, p)
	var refused *refusal
	if errors.As(err, &refused) && refused.has(codeBucketExists) { // another call created it, or R2's list is late
		err = nil
	}
	s.bucket = err == nil
	return d.fail(step{what: "make R2 bucket " + want.Name, changes: true, needs: permR2}, err)
}

// removeBucket removes a bucket with all its objects: R2 deletes only empty buckets.
func (d *Deployer) removeBucket(ctx context.Context, s *inventory) error {
	if !s.bucket {
		return nil
	}
	for {
		n, err := d.removeObjects(ctx, s.name)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p r2.BucketDeleteParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	_, err := d.buckets.Delete(ctx, s.name, p)
	return d.fail(step{what: "delete R2 bucket " + s.name, changes: true, needs: permR2}, err)
}

// removeObjects deletes a bucket's first page of objects, and returns their number.
func (d *Deployer) removeObjects(ctx context.Context, bucket string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p r2.BucketObjectListParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	p.PerPage.Value, p.PerPage.Present = objectsPerPage, true
	page, err := d.buckets.Objects.List(ctx, bucket, p)
	if isAbsent(err) {
		return 0, nil
	}
	if err != nil {
		return 0, d.fail(step{what: "list what is in R2 bucket " + bucket, needs: permR2}, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(objectsAtOnce)
	for _, object := range page.Result {
		group.Go(func() error { return d.removeObject(ctx, bucket, object.Key) })
	}
	return len(page.Result), group.Wait()
}

func (d *Deployer) removeObject(ctx context.Context, bucket, key string) error {
	var p r2.BucketObjectDeleteParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	_, err := d.buckets.Objects.Delete(ctx, bucket, escapeKey(key), p)
	if isAbsent(err) {
		return nil
	}
	return d.fail(step{what: fmt.Sprintf("delete %q in R2 bucket %s", key, bucket), changes: true, needs: permR2}, err)
}

// escapeKey escapes an object's key for a path: cloudflare-go does not.
func escapeKey(key string) string {
	segments := strings.Split(key, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return strings.Join(segments, "/")
}
