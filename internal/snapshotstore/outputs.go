package snapshotstore

import (
	"context"
	"io"
)

// Put stores content under object, which should be a name never used before. The object becomes visible only when it is
// complete. When Put returns, it survives a power cut.
func (s *Store) Put(ctx context.Context, object string, content io.Reader) error {
	if err := checkObject(object); err != nil {
		return err
	}
	return s.failed("put", object, s.publish(ctx, object, "application/octet-stream", content))
}

// Open returns the content of an object from an offset in bytes. Errors: NotFound if the bucket has no such object.
func (s *Store) Open(ctx context.Context, object string, offset int64) (io.ReadCloser, error) {
	if err := checkObject(object); err != nil {
		return nil, err
	}
	r, err := s.bucket.NewRangeReader(ctx, object, offset, -1, nil)
	if err != nil {
		return nil, s.failed("open", object, s.absent(ctx, err))
	}
	return r, nil
}

// Has reports whether the bucket has an object.
func (s *Store) Has(ctx context.Context, object string) (bool, error) {
	if err := checkObject(object); err != nil {
		return false, err
	}
	there, err := s.bucket.Exists(ctx, object)
	if err == nil && !there { // a missing bucket has no objects either
		err = s.look(ctx)
	}
	return there, s.failed("look for", object, err)
}
