package snapshotstore

import (
	"context"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob/s3blob"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// openS3 opens a bucket of Amazon S3 or a compatible service. It finds credentials as every AWS tool does: in the
// environment, in shared files, or by the machine's role. The parameters of the URL are:
//
//	region          where the bucket is; "auto" for Cloudflare R2. Default: AWS_REGION
//	endpoint        a service other than Amazon's, such as https://ACCOUNT.r2.cloudflarestorage.com
//	use_path_style  true for services that address a bucket by its path, such as MinIO
//	profile, role   whose credentials are used
//	ssetype, kmskeyid, accelerate, dualstack, fips, anonymous, disable_https, hostname_immutable,
//	rate_limiter_capacity, request_checksum_calculation, response_checksum_validation
//	                see gocloud.dev/blob/s3blob
func openS3(ctx context.Context, u *url.URL) (*Store, error) {
	s := &Store{name: "s3://" + u.Host}
	invalid := func(format string, args ...any) error {
		return sandbox.Errorf(sandbox.Invalid, "snapshot store: bucket "+s.name+": "+format, args...)
	}
	if u.Host == "" || (u.Path != "" && u.Path != "/") {
		return nil, invalid("a bucket is named like s3://name?region=eu-west-1, without a path")
	}
	q := u.Query()
	if q.Has("endpoint") { // other services reject Amazon's newer checksums; the archive has its own
		for _, option := range []string{"request_checksum_calculation", "response_checksum_validation"} {
			if !q.Has(option) {
				q.Set(option, "when_required")
			}
		}
	}
	where := *u
	where.RawQuery = q.Encode()
	bucket, err := new(s3blob.URLOpener).OpenBucketURL(ctx, &where)
	if err != nil {
		return nil, invalid("%w", err)
	}
	var client *s3.Client
	if bucket.As(&client) && client.Options().Region == "" {
		_ = bucket.Close() // it has no connection yet
		return nil, invalid("it needs a region: add ?region= to its URL (auto for Cloudflare R2), or set AWS_REGION")
	}
	s.bucket = bucket
	return s, nil
}
