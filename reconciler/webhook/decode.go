package webhook

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/strictjson"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// MaxBody is the maximum size of a message, in bytes.
const MaxBody = 64 << 10

// Decode decodes and validates the body of a message. It is strict, because a lenient decoder may skip what the sender
// meant. It rejects unknown and duplicate fields, null, names in another case, invalid UTF-8 and data after the object.
// Errors: Invalid, naming each field.
func Decode(body []byte) (sandbox.Condition, error) {
	var c sandbox.Condition
	if err := sandbox.InvalidFields("condition", strictjson.DecodeNonNull(body, &c)); err != nil {
		return sandbox.Condition{}, err
	}
	if err := c.Validate(); err != nil {
		return sandbox.Condition{}, err
	}
	return c, nil
}
